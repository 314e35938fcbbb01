#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/frames.h"
#include "base/sealed_frames.h"
#include "transport/channel.h"

namespace sirtaki {

/// Messages to and from the leader of another host over a channel, sealed with its keys.
///
/// Nothing blocks: what the channel does not accept waits in memory. One thread at a time may use
/// it. It outlives the engines that use it: each message belongs to a generation, late ones of an
/// earlier generation are dropped, and those of a later one wait for it.
class HostLink {
 public:
  using Receive = std::function<void(std::string_view message)>;

  explicit HostLink(std::unique_ptr<Channel> channel);

  /// The leader at the other end.
  int rank() const { return rank_; }
  bool open() const { return channel_ != nullptr; }
  /// Adds what ends a sleep once a message arrives, or a waiting one can leave.
  void prepare(Sleep& sleep);

  /// Starts this generation, to which all further messages belong.
  void begin(uint32_t generation) { generation_ = generation; }
  /// Whether messages came before their generation began: then `receive` has some to pass on.
  bool has_early() const { return !early_.empty(); }

  void queue(std::string_view message);
  void send(std::string_view message) {
    queue(message);
    flush();
  }
  /// Sends as many waiting bytes as the channel accepts.
  void flush();
  bool has_backlog() const { return open() && !(channel_->out().idle() && waiting_.empty()); }

  /// Passes on the messages that arrived; false if the other end is gone. Throws Altered.
  bool receive(const Receive& receive);
  /// Closes the connection, even if other processes have it, and forgets it.
  void close();

 private:
  struct Early {
    uint32_t generation;
    std::string message;
  };

  void listen();
  void take(const Receive& receive);
  void sort(uint32_t generation, std::string_view message, const Receive& receive);

  int rank_;
  std::unique_ptr<Channel> channel_;  ///< null once closed
  FrameSealer sealer_;
  FrameOpener opener_;
  std::string waiting_;            ///< not yet passed to the channel
  std::vector<char> sending_;      ///< the bytes that the channel sends
  std::vector<std::byte> coming_;  ///< the memory that the channel receives into
  size_t taken_ = 0;               ///< bytes at the front of `coming_` that have been taken
  std::string received_;
  uint32_t generation_ = kFirstGeneration;
  std::vector<Early> early_;
};

}  // namespace sirtaki
