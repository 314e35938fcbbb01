#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "transport/network/connect.h"

namespace sirtaki::testing {

/// Hands both ends of a pair the two sides of a socketpair, as soon as both have asked.
class Switchboard {
 public:
  Fd connect(int rank, int peer, int number, const Connect::Ended& ended) {
    std::unique_lock lock(mutex_);
    const auto key = std::make_tuple(std::min(rank, peer), std::max(rank, peer), number);
    const auto waiting = sides_.find(key);
    if (waiting != sides_.end()) {
      Fd side = std::move(waiting->second);
      sides_.erase(waiting);
      changed_.notify_all();
      return side;
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
      throw std::runtime_error("no socketpair");
    }
    sides_[key] = Fd(pair[1]);
    while (!closed_ && !ended() && sides_.count(key) != 0) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    if (sides_.count(key) != 0) throw std::runtime_error("the test is over");
    return Fd(pair[0]);
  }

  /// How a rank connects.
  Connect of(int rank) {
    Connect connect;
    connect.open = [this, rank](int peer, int number, const Connect::Ended& ended) {
      return this->connect(rank, peer, number, ended);
    };
    return connect;
  }

  /// Nobody waits any longer for a peer that does not come.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, int>, Fd> sides_;
  bool closed_ = false;
};

}  // namespace sirtaki::testing
