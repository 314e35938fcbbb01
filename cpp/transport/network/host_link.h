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
/// Nothing blocks: what the channel does not take waits in memory. One thread at a time may use it.
/// It outlives the engines that use it: each message is of a generation, late ones of an earlier
/// one are dropped, and those of a later one wait for it.
class HostLink {
 public:
  using Receive = std::function<void(std::string_view message)>;

  explicit HostLink(std::unique_ptr<Channel> channel);

  /// The leader at the other end.
  int rank() const { return rank_; }
  bool open() const { return channel_ != nullptr; }
  /// Adds what ends a sleep once something comes, or what waits can leave.
  void prepare(Sleep& sleep);

  /// From here on messages are of this generation.
  void begin(uint32_t generation) { generation_ = generation; }
  /// Messages have come before their generation had begun: `receive` has something.
  bool has_early() const { return !early_.empty(); }

  void queue(std::string_view message);
  void send(std::string_view message) {
    queue(message);
    flush();
  }
  /// Sends of what waits as much as the channel takes.
  void flush();
  bool has_backlog() const { return open() && !(channel_->out().idle() && waiting_.empty()); }

  /// Hands over the messages that arrived; false if the other end is gone. Throws Altered.
  bool receive(const Receive& receive);
  /// Hangs up, whoever else has the connection, and forgets it.
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
  std::string waiting_;            ///< not given to the channel yet
  std::vector<char> sending_;      ///< what the channel sends
  std::vector<std::byte> coming_;  ///< what the channel receives into
  size_t taken_ = 0;               ///< bytes at the front of `coming_` that have been taken
  std::string received_;
  uint32_t generation_ = kFirstGeneration;
  std::vector<Early> early_;
};

}  // namespace sirtaki
