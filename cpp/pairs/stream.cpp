#include "pairs/stream.h"

#include <algorithm>
#include <utility>

namespace sirtaki {

// ---- Rings ----

RingStream::RingStream(const Region& region, const Doorbell& doorbell, int place, int peer)
    : doorbell_(doorbell),
      peer_(peer),
      flags_(region.pair_flags(peer)[place / 64]),
      bit_(uint64_t{1} << (place % 64)),
      in_(region.pair_ring(peer, place, RingEnd::kReads)),
      out_(region.pair_ring(place, peer, RingEnd::kWrites)) {}

size_t RingStream::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  const size_t slice = out_.bytes() / kSlices;  // the peer reads one during the next write
  const size_t wanted = first.size() + second.size();
  size_t written = out_.put(first.data(), first.size());
  while (written >= first.size() && written < wanted) {
    const size_t at = written - first.size();
    const size_t count = out_.put(second.data() + at, std::min(slice, second.size() - at));
    written += count;
    if (count == 0 || written == wanted) break;
    out_.publish();
    tell();
  }
  out_.publish();
  if (written < wanted) out_.block();
  tell();
  return written;
}

size_t RingStream::read(std::byte* to, size_t bytes) {
  return in_.take(to, std::min<size_t>(bytes, in_.bytes() / kSlices));
}

void RingStream::tell() const {
  flags_.fetch_or(bit_);
  doorbell_.ring(peer_, kPair);
}

// ---- Channels ----

size_t ChannelStream::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (channel_.out().idle()) {
    channel_.send(first);
    channel_.send(second);
  }
  channel_.flush();
  require_whole();
  return channel_.out().moved - std::exchange(written_, channel_.out().moved);
}

size_t ChannelStream::read(std::byte* to, size_t bytes) {
  if (channel_.in().idle()) {
    if (to == nullptr) {
      thrown_away_.resize(kThrownAway);
      to = thrown_away_.data();
      bytes = std::min(bytes, kThrownAway);
    }
    channel_.receive({to, bytes});
  }
  if (!channel_.in().idle()) {
    channel_.fetch();
    require_whole();
  }
  return channel_.in().moved - std::exchange(read_, channel_.in().moved);
}

void ChannelStream::abandon() {
  channel_.abandon();
  written_ = read_ = 0;
}

void ChannelStream::require_whole() const {
  if (channel_.broken()) throw Broken(channel_.failure());
}

}  // namespace sirtaki
