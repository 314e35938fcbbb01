#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/sealed_frames.h"
#include "transport/watcher.h"

namespace sirtaki {

/// Messages to and from the leader of another host, over a connected stream socket, sealed with the
/// link's keys.
///
/// Nothing blocks: what the socket does not take waits in memory. One thread at a time may use it.
class HostLink {
 public:
  using Receive = std::function<void(std::string_view message)>;

  explicit HostLink(Link link);

  /// The leader at the other end.
  int rank() const { return rank_; }
  /// To be polled; negative once closed.
  int fd() const { return socket_.get(); }

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
  /// Forgets the connection.
  void close();

 private:
  int rank_;
  Fd socket_;
  FrameSealer sealer_;
  FrameOpener opener_;
  std::string waiting_;
  size_t sent_ = 0;  ///< bytes at the front of `waiting_` that are on their way
  std::string received_;
};

}  // namespace sirtaki
