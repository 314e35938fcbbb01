#include "pairs/stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sirtaki {

// ---- Rings ----

RingStream::RingStream(const Region& region, const Doorbell& doorbell, int place, int peer)
    : doorbell_(doorbell),
      peer_(peer),
      flags_(region.pair_flags(peer)[place / 64]),
      bit_(uint64_t{1} << (place % 64)),
      in_(region.pair_ring(peer, place, PairRing::End::kReads)),
      out_(region.pair_ring(place, peer, PairRing::End::kWrites)) {}

size_t RingStream::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  const size_t slice = out_.bytes() / kSlices;  // the peer reads one while the next is written
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

// ---- Sockets ----

SocketStream::SocketStream(Fd socket) : socket_(std::move(socket)), buffer_(kBuffer) {
  // Sockets of other families have no such delay.
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

size_t SocketStream::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  // iovec knows no memory that is only read.
  iovec pieces[2] = {{const_cast<std::byte*>(first.data()), first.size()},
                     {const_cast<std::byte*>(second.data()), second.size()}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  for (;;) {
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) throw Broken(std::strerror(errno));
  }
}

size_t SocketStream::read(std::byte* to, size_t bytes) {
  if (begin_ < end_) return take(to, bytes);
  if (to == nullptr || bytes < kBuffer / 2) {
    fill(nullptr, 0);
    return take(to, bytes);
  }
  return fill(to, bytes);
}

size_t SocketStream::take(std::byte* to, size_t bytes) {
  const size_t count = std::min(bytes, end_ - begin_);
  if (to != nullptr && count > 0) std::memcpy(to, buffer_.data() + begin_, count);
  begin_ += count;
  return count;
}

/// Reads into `to`, and what comes behind that into the buffer; how much is in `to`.
size_t SocketStream::fill(std::byte* to, size_t bytes) {
  iovec pieces[2] = {{to, bytes}, {buffer_.data(), buffer_.size()}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  for (;;) {
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (got == 0) throw Broken("it was closed at the other end");
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) throw Broken(std::strerror(errno));
    const size_t count = got < 0 ? 0 : static_cast<size_t>(got);
    begin_ = 0;
    end_ = count > bytes ? count - bytes : 0;
    return std::min(count, bytes);
  }
}

}  // namespace sirtaki
