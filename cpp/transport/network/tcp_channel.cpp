#include "transport/network/tcp_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {
namespace {

constexpr size_t kAhead = 64 << 10;

/// Whether it is not an error of the connection.
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

// ---- Noting memory ----

TcpChannel::TcpChannel(int rank, DataSocket connected)
    : Channel(rank, connected.keys), socket_(std::move(connected.socket)) {
  // Sockets of other families have no such delay.
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

TcpChannel::TcpChannel(int rank, std::string why) : Channel(rank, {}) {
  failure_ = why.empty() ? "no reason is known" : std::move(why);
}

Ticket TcpChannel::note(std::byte* data, size_t bytes, Flow& flow, Pieces& pieces) {
  pieces.add(data, bytes);
  flow.noted += bytes;
  return {&flow, flow.noted};
}

Ticket TcpChannel::send(std::span<const std::byte> from) {
  // iovec has no form for memory that is only read.
  return note(const_cast<std::byte*>(from.data()), from.size(), out_, sent_);
}

Ticket TcpChannel::receive(std::span<std::byte> to) {
  const Ticket ticket = note(to.data(), to.size(), in_, received_);
  serve_ahead();
  return ticket;
}

void TcpChannel::abandon() {
  sent_ = received_ = {};
  out_ = in_ = {};
  watch_for_room();
}

// ---- Moving bytes ----

void TcpChannel::moved(size_t bytes, Flow& flow, Pieces& pieces) {
  pieces.advance(bytes);
  flow.moved += bytes;
}

bool TcpChannel::flush() {
  if (out_.idle() || broken()) return false;
  const bool moved = push();
  watch_for_room();
  return moved;
}

bool TcpChannel::push() {
  msghdr message{};
  message.msg_iov = sent_.begin();
  message.msg_iovlen = sent_.count();
  const ssize_t bytes = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (bytes < 0) {
    if (is_passing(errno)) return false;
    why_deaf_ = std::strerror(errno);
    if (in_.idle()) fail(why_deaf_);
    return false;
  }
  moved(static_cast<size_t>(bytes), out_, sent_);
  return true;
}

bool TcpChannel::fetch() {
  if (in_.idle() || broken()) return false;
  const iovec first = *received_.begin();
  iovec with_more[2] = {first, {}};
  msghdr message{};
  if (epoll_ >= 0) {
    with_more[1] = {ahead_.data(), ahead_.size()};
    message.msg_iov = with_more;
    message.msg_iovlen = 2;
  } else {
    message.msg_iov = received_.begin();
    message.msg_iovlen = received_.count();
  }
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (got <= 0) {
    if (got == 0) fail(why_deaf_.empty() ? "it was closed at the other end" : why_deaf_);
    if (got < 0 && !is_passing(errno)) fail(std::strerror(errno));
    return false;
  }
  const auto bytes = static_cast<size_t>(got);
  if (epoll_ < 0 || bytes <= first.iov_len) {
    moved(bytes, in_, received_);
  } else {
    moved(first.iov_len, in_, received_);
    unread_ = std::span(ahead_).first(bytes - first.iov_len);
    serve_ahead();
  }
  return true;
}

/// Copies bytes that were read ahead to the noted memory that waits for them.
void TcpChannel::serve_ahead() {
  while (!received_.empty() && !unread_.empty()) {
    const iovec& piece = *received_.begin();
    const size_t bytes = std::min(piece.iov_len, unread_.size());
    std::memcpy(piece.iov_base, unread_.data(), bytes);
    unread_ = unread_.subspan(bytes);
    moved(bytes, in_, received_);
  }
}

// ---- Telling others ----

void TcpChannel::prepare(Sleep& sleep) const {
  const int events = (in_.idle() ? 0 : POLLIN) | (out_.idle() ? 0 : POLLOUT);
  // Without work, only its end would be an event, and that again and again.
  if (broken() || events == 0) return;
  sleep.polled.push_back({socket_.get(), static_cast<short>(events), 0});
}

void TcpChannel::close() {
  // Shuts the socket down even if other processes have it, so that the peer notices.
  if (socket_.get() >= 0) shutdown(socket_.get(), SHUT_RDWR);
}

/// A host whose process does not read still acknowledges. The kernel retries for much longer than a
/// lost host should delay the others.
bool TcpChannel::is_silent(int64_t limit_ns) {
  constexpr int64_t kNsPerMs = 1'000'000;
  constexpr int64_t kTickNs = 10'000'000;  // the kernel counts the time since an answer in these
  constexpr uint8_t kProbes = 2;           // of a closed window; a single one may be in flight
  tcp_info info{};
  socklen_t size = sizeof info;
  if (limit_ns <= 0) return false;
  if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const bool asked = info.tcpi_unacked > 0 || info.tcpi_probes >= kProbes;
  const int64_t now = now_ns();
  const bool heard = now - info.tcpi_last_ack_recv * kNsPerMs + kTickNs >= silence_.looked_ns();
  const bool still = std::exchange(asked_, asked) && asked && !heard;
  return silence_.look(still, now, limit_ns / 4) >= limit_ns;
}

void TcpChannel::fail(const std::string& why) {
  failure_ = why;
  unwatch();  // its end would be a permanent event
}

void TcpChannel::watch(int epoll) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = static_cast<Channel*>(this)}};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
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
  epoll_event event{.events = EPOLLIN, .data = {.ptr = static_cast<Channel*>(this)}};
  if (waits) event.events |= EPOLLOUT;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event);
}

/// Removes the socket even if other processes have it.
void TcpChannel::unwatch() {
  if (epoll_ >= 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_.get(), nullptr);
  epoll_ = -1;
}

}  // namespace sirtaki
