#include "transport/network/data_links.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/frames.h"

namespace sirtaki {
namespace {

constexpr int kLookMs = 100;

/// What the ends of a kept connection say to each other before they use it again: anything else
/// that is found there was left by an operation that failed.
struct Again {
  uint32_t magic = 0x41474149;
  uint32_t generation;
  int32_t lane;
  uint32_t step;
};

bool say(int socket, const Again& word) {
  return ::send(socket, &word, sizeof word, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof word;
}

}  // namespace

DataLinks::DataLinks(int rank, Connect connect, double patience_seconds, double silent_seconds)
    : rank_(rank),
      connect_(std::move(connect)),
      patience_ns_(static_cast<int64_t>(patience_seconds * 1e9)),
      silent_ns_(static_cast<int64_t>(silent_seconds * 1e9)),
      generation_(kFirstGeneration) {}

void DataLinks::begin(uint32_t generation) {
  const std::lock_guard lock(mutex_);
  generation_ = generation;
}

Fd DataLinks::open(int rank, int lane, const Connect::Ended& ended) {
  const Key key{rank, lane};
  Fd socket = take(key);
  if (socket.get() >= 0 && !agree(socket, rank, lane, ended)) {
    shutdown(socket.get(), SHUT_RDWR);  // the other end notices it, and opens another one too
    socket = Fd();
  }
  if (socket.get() < 0) socket = connect_.open(rank, lane, ended);
  return keep(key, std::move(socket));
}

Fd DataLinks::take(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(key);
  if (found == kept_.end()) return Fd();
  Fd socket = std::move(found->second);
  kept_.erase(found);
  return socket;
}

/// Returns a copy.
Fd DataLinks::keep(const Key& key, Fd socket) {
  Fd copy(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (copy.get() < 0) {
    throw Error(ErrorCode::kInternal,
                std::string("cannot copy a connection's descriptor: ") + std::strerror(errno));
  }
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error(ErrorCode::kPeerLost, "the world has ended");
  kept_[key] = std::move(socket);
  return copy;
}

/// The one of higher rank begins and ends the talk, so that both come to the same result: whoever
/// finds something else hangs up, and the other waits for a word that does not come.
bool DataLinks::agree(const Fd& socket, int rank, int lane, const Connect::Ended& ended) const {
  uint32_t generation;
  {
    const std::lock_guard lock(mutex_);
    generation = generation_;
  }
  const int64_t deadline = now_ns() + patience_ns_;
  const auto word = [&](uint32_t step) {
    return Again{.generation = generation, .lane = lane, .step = step};
  };
  const auto hears = [&](const Again& expected) {
    Again heard;
    for (size_t got = 0; got < sizeof heard;) {
      pollfd polled{socket.get(), POLLIN, 0};
      if (poll(&polled, 1, kLookMs) <= 0) {
        if (ended()) throw Error(ErrorCode::kPeerLost, "the world has ended");
        if (is_silent(socket.get(), silent_ns_)) {
          throw Error(ErrorCode::kPeerLost, "no answer from the other host");
        }
        if (now_ns() < deadline) continue;
        throw Error(ErrorCode::kPeerLost, "rank " + std::to_string(rank) +
                                              " does not come to the connection that it has");
      }
      const ssize_t part = recv(socket.get(), reinterpret_cast<char*>(&heard) + got,
                                sizeof heard - got, MSG_DONTWAIT);
      if (part < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (part <= 0) return false;
      got += static_cast<size_t>(part);
    }
    return std::memcmp(&heard, &expected, sizeof heard) == 0;
  };
  if (rank_ > rank)
    return say(socket.get(), word(1)) && hears(word(2)) && say(socket.get(), word(3));
  return hears(word(1)) && say(socket.get(), word(2)) && hears(word(3));
}

void DataLinks::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [key, socket] : kept_) shutdown(socket.get(), SHUT_RDWR);
  kept_.clear();
}

}  // namespace sirtaki
