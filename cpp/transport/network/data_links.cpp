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
#include "transport/network/silence.h"

namespace sirtaki {
namespace {

constexpr int kLookMs = 100;

/// What the ends of a kept connection say to each other before they use it again: anything else
/// that is found there was left by an operation that failed.
struct Again {
  uint32_t magic = 0x41474149;
  uint32_t generation;
  int32_t number;
  uint32_t step;
};

/// Whoever changes a word finds no tag for it, and none is said twice.
Sealed<Again> seal(const Again& word, const SipKey& key) {
  Sealed<Again> sealed{word, {}};
  sealed.tag = siphash(key, sealed.text());
  return sealed;
}

bool say(int socket, const Sealed<Again>& sealed) {
  return ::send(socket, &sealed, sizeof sealed, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof sealed;
}

/// Engines count their tags from 0 again.
SealKeys of_generation(const SealKeys& keys, uint32_t generation) {
  constexpr std::string_view kLabel = "sirtaki engine";
  return {siphash(keys.sending, generation, kLabel), siphash(keys.receiving, generation, kLabel)};
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

DataSocket DataLinks::open(int rank, int number, const Connect::Ended& ended) {
  const Key key{rank, number};
  DataSocket kept = take(key);
  if (kept.socket.get() >= 0 && !agree(kept, rank, number, ended)) {
    shutdown(kept.socket.get(), SHUT_RDWR);  // the other end notices it, and opens another one too
    kept = {};
  }
  if (kept.socket.get() < 0) kept = connect_.open(rank, number, ended);
  return keep(key, std::move(kept));
}

uint32_t DataLinks::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

DataSocket DataLinks::take(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(key);
  if (found == kept_.end()) return {};
  DataSocket kept = std::move(found->second);
  kept_.erase(found);
  return kept;
}

/// Returns a copy, for this generation.
DataSocket DataLinks::keep(const Key& key, DataSocket opened) {
  Fd copy(fcntl(opened.socket.get(), F_DUPFD_CLOEXEC, 0));
  if (copy.get() < 0) {
    throw Error(ErrorCode::kInternal,
                std::string("cannot copy a connection's descriptor: ") + std::strerror(errno));
  }
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error(ErrorCode::kPeerLost, "the world has ended");
  DataSocket& kept = kept_[key] = std::move(opened);
  return {std::move(copy), of_generation(kept.keys, generation_)};
}

/// The one of higher rank begins and ends the talk, so that both come to the same result: whoever
/// finds something else hangs up, and the other waits for a word that does not come.
bool DataLinks::agree(const DataSocket& kept, int rank, int number,
                      const Connect::Ended& ended) const {
  const Fd& socket = kept.socket;
  const int64_t deadline = now_ns() + patience_ns_;
  Silence silence;
  const auto word = [&, generation = generation()](uint32_t step) {
    return Again{.generation = generation, .number = number, .step = step};
  };
  const auto says = [&](uint32_t step) {
    return say(socket.get(), seal(word(step), kept.keys.sending));
  };
  const auto hears = [&](uint32_t step) {
    const Sealed<Again> expected = seal(word(step), kept.keys.receiving);
    Sealed<Again> heard;
    for (size_t got = 0; got < sizeof heard;) {
      pollfd polled{socket.get(), POLLIN, 0};
      if (machine::poll(&polled, 1, kLookMs) <= 0) {
        if (ended()) throw Error(ErrorCode::kPeerLost, "the world has ended");
        if (silence.lasts(socket.get(), silent_ns_)) {
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
  if (rank_ > rank) return says(1) && hears(2) && says(3);
  return hears(1) && says(2) && hears(3);
}

void DataLinks::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [key, kept] : kept_) shutdown(kept.socket.get(), SHUT_RDWR);
  kept_.clear();
}

}  // namespace sirtaki
