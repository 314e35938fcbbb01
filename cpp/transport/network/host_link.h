#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/frames.h"
#include "base/sealed_frames.h"
#include "transport/network/watcher.h"

namespace sirtaki {

/// Messages to and from the leader of another host, over a connected stream socket, sealed with the
/// link's keys.
///
/// Nothing blocks: what the socket does not take waits in memory. One thread at a time may use it.
/// It outlives the engines that use it: each message is of a generation, late ones of an earlier
/// one are dropped, and those of a later one wait for it.
class HostLink {
 public:
  using Receive = std::function<void(std::string_view message)>;

  explicit HostLink(Link link);

  /// The leader at the other end.
  int rank() const { return rank_; }
  /// To be polled; negative once closed.
  int fd() const { return socket_.get(); }

  /// From here on messages are of this generation.
  void begin(uint32_t generation) { generation_ = generation; }
  /// Messages have come before their generation had begun: `receive` has something.
  bool has_early() const { return !early_.empty(); }

  void queue(std::string_view message);
  void send(std::string_view message) {
    queue(message);
    flush();
  }
  /// Sends of what waits as much as the socket takes.
  void flush();
  bool has_backlog() const { return sent_ < waiting_.size(); }

  /// Hands over the messages that arrived; false if the other end is gone. Throws Altered.
  bool receive(const Receive& receive);
  /// Hangs up, whoever else has the socket, and forgets the connection.
  void close();

 private:
  struct Early {
    uint32_t generation;
    std::string message;
  };

  void sort(uint32_t generation, std::string_view message, const Receive& receive);

  int rank_;
  Fd socket_;
  FrameSealer sealer_;
  FrameOpener opener_;
  std::string waiting_;
  size_t sent_ = 0;  ///< bytes at the front of `waiting_` that are on their way
  std::string received_;
  uint32_t generation_ = kFirstGeneration;
  std::vector<Early> early_;
};

}  // namespace sirtaki
