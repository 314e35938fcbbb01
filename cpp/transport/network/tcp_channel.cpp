#include "transport/network/tcp_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {
namespace {

constexpr size_t kStripe = 64 << 10;
constexpr size_t kAhead = 64 << 10;

/// Not an error of the connection.
bool is_passing(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

// ---- Pieces ----

void Pieces::add(std::byte* data, size_t bytes) {
  if (bytes == 0) return;
  if (!empty()) {
    iovec& last = list_.back();
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += bytes;
      return;
    }
  }
  list_.push_back({data, bytes});
}

void Pieces::advance(size_t bytes) {
  moved_ += bytes;
  while (bytes > 0) {
    iovec& piece = list_[first_];
    const size_t part = std::min(bytes, piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + part;
    piece.iov_len -= part;
    bytes -= part;
    if (piece.iov_len == 0) ++first_;
  }
  if (!empty()) return;
  list_.clear();
  first_ = 0;
}

// ---- What is noted ----

TcpChannel::TcpChannel(int rank, DataSocket connected) : Channel(rank, connected.keys) {
  add(std::move(connected.socket));
}

TcpChannel::TcpChannel(int rank, std::vector<DataSocket> connected)
    : Channel(rank, connected.front().keys) {
  for (DataSocket& one : connected) add(std::move(one.socket));
}

void TcpChannel::add(Fd socket) {
  // Sockets of other families have no such delay.
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  stripes_.push_back({std::move(socket)});
}

TcpChannel::TcpChannel(int rank, std::string why) : Channel(rank, {}) {
  failure_ = why.empty() ? "no reason is known" : std::move(why);
}

Ticket TcpChannel::deal(std::byte* data, size_t bytes, Flow& flow, Pieces Stripe::* direction) {
  while (bytes > 0) {
    const uint64_t stripe = flow.noted / kStripe;
    const size_t left = kStripe - flow.noted % kStripe;
    const size_t part = stripes_.size() == 1 ? bytes : std::min(bytes, left);
    (stripes_[stripe % stripes_.size()].*direction).add(data, part);
    flow.noted += part;
    data += part;
    bytes -= part;
  }
  return {&flow, flow.noted};
}

Ticket TcpChannel::send(std::span<const std::byte> from) {
  // iovec knows no memory that is only read.
  return deal(const_cast<std::byte*>(from.data()), from.size(), out_, &Stripe::out);
}

Ticket TcpChannel::receive(std::span<std::byte> to) {
  const Ticket ticket = deal(to.data(), to.size(), in_, &Stripe::in);
  serve_ahead();
  return ticket;
}

void TcpChannel::abandon() {
  for (Stripe& stripe : stripes_) stripe.out = stripe.in = {};
  out_ = in_ = {};
  watch_for_room();
}

// ---- What is moved ----

bool TcpChannel::flush() {
  if (out_.idle() || broken()) return false;
  bool moved = false;
  for (Stripe& stripe : stripes_) moved |= push(stripe);
  if (moved) count(out_, &Stripe::out);
  watch_for_room();
  return moved;
}

bool TcpChannel::fetch() {
  if (in_.idle() || broken()) return false;
  bool moved = false;
  for (Stripe& stripe : stripes_) moved |= pull(stripe);
  if (moved) count(in_, &Stripe::in);
  return moved;
}

/// How many of the bytes have moved without a gap.
void TcpChannel::count(Flow& flow, Pieces Stripe::* direction) const {
  uint64_t whole = flow.noted;
  for (size_t i = 0; i < stripes_.size(); ++i) {
    const uint64_t moved = (stripes_[i].*direction).moved();
    const uint64_t round = moved / kStripe * stripes_.size() + i;
    whole = std::min(whole, stripes_.size() == 1 ? moved : round * kStripe + moved % kStripe);
  }
  flow.moved = whole;
}

bool TcpChannel::push(Stripe& stripe) {
  if (stripe.out.empty() || broken()) return false;
  msghdr message{};
  message.msg_iov = stripe.out.begin();
  message.msg_iovlen = stripe.out.count();
  const ssize_t bytes = sendmsg(stripe.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (bytes < 0) {
    if (is_passing(errno)) return false;
    why_deaf_ = std::strerror(errno);
    if (stripe.in.empty()) fail(why_deaf_);
    return false;
  }
  stripe.out.advance(static_cast<size_t>(bytes));
  return true;
}

bool TcpChannel::pull(Stripe& stripe) {
  if (stripe.in.empty() || broken()) return false;
  const iovec first = *stripe.in.begin();
  iovec with_more[2] = {first, {}};
  msghdr message{};
  if (epoll_ >= 0) {
    with_more[1] = {ahead_.data(), ahead_.size()};
    message.msg_iov = with_more;
    message.msg_iovlen = 2;
  } else {
    message.msg_iov = stripe.in.begin();
    message.msg_iovlen = stripe.in.count();
  }
  const ssize_t got = recvmsg(stripe.socket.get(), &message, MSG_DONTWAIT);
  if (got <= 0) {
    if (got == 0) fail(why_deaf_.empty() ? "it was closed at the other end" : why_deaf_);
    if (got < 0 && !is_passing(errno)) fail(std::strerror(errno));
    return false;
  }
  const auto bytes = static_cast<size_t>(got);
  if (epoll_ < 0 || bytes <= first.iov_len) {
    stripe.in.advance(bytes);
  } else {
    stripe.in.advance(first.iov_len);
    unread_ = std::span(ahead_).first(bytes - first.iov_len);
    serve_ahead();
  }
  return true;
}

/// Gives what has been read ahead to those who ask for it.
void TcpChannel::serve_ahead() {
  if (unread_.empty()) return;
  Pieces& pieces = stripes_[0].in;
  while (!pieces.empty() && !unread_.empty()) {
    const iovec& piece = *pieces.begin();
    const size_t bytes = std::min(piece.iov_len, unread_.size());
    std::memcpy(piece.iov_base, unread_.data(), bytes);
    unread_ = unread_.subspan(bytes);
    pieces.advance(bytes);
  }
  count(in_, &Stripe::in);
}

// ---- What others are told ----

void TcpChannel::prepare(Sleep& sleep) const {
  if (broken()) return;
  for (const Stripe& stripe : stripes_) {
    const int events = (stripe.in.empty() ? 0 : POLLIN) | (stripe.out.empty() ? 0 : POLLOUT);
    // Of a socket without work only its end would be news, again and again.
    if (events != 0) {
      sleep.polled.push_back({stripe.socket.get(), static_cast<short>(events), 0});
    }
  }
}

void TcpChannel::close() {
  // Whoever else has the socket, so that the peer notices it.
  for (const Stripe& stripe : stripes_) shutdown(stripe.socket.get(), SHUT_RDWR);
}

bool TcpChannel::is_silent(int64_t limit_ns) {
  return std::any_of(stripes_.begin(), stripes_.end(), [&](Stripe& stripe) {
    return stripe.silence.lasts(stripe.socket.get(), limit_ns);
  });
}

void TcpChannel::fail(const std::string& why) {
  failure_ = why;
  unwatch();  // its end would be news for ever
}

void TcpChannel::watch(int epoll) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = static_cast<Channel*>(this);
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, stripes_[0].socket.get(), &event) != 0) {
    throw Error(ErrorCode::kInternal,
                std::string("cannot watch a socket: ") + std::strerror(errno));
  }
  epoll_ = epoll;
  ahead_.resize(kAhead);
}

void TcpChannel::watch_for_room() {
  const bool waits = !out_.idle();
  if (epoll_ < 0 || waits == watches_room_) return;
  watches_room_ = waits;
  epoll_event event{};
  event.events = EPOLLIN;
  if (waits) event.events |= EPOLLOUT;
  event.data.ptr = static_cast<Channel*>(this);
  epoll_ctl(epoll_, EPOLL_CTL_MOD, stripes_[0].socket.get(), &event);
}

/// Whoever else has the socket.
void TcpChannel::unwatch() {
  if (epoll_ >= 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, stripes_[0].socket.get(), nullptr);
  epoll_ = -1;
}

}  // namespace sirtaki
