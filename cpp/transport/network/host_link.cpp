#include "transport/network/host_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace sirtaki {

HostLink::HostLink(Link link)
    : rank_(link.rank),
      socket_(std::move(link.socket)),
      sealer_(link.keys.sending),
      opener_(link.keys.receiving) {
  // Messages are short and each may be waited for. Other kinds of sockets do not know the option.
  const int yes = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void HostLink::queue(std::string_view message) {
  std::string frame(reinterpret_cast<const char*>(&generation_), sizeof generation_);
  frame.append(message);
  sealer_.append(waiting_, frame);
}

void HostLink::flush() {
  constexpr size_t kForget = 1 << 20;
  while (has_backlog()) {
    const ssize_t sent = ::send(socket_.get(), waiting_.data() + sent_, waiting_.size() - sent_,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    // A broken connection is reported by receiving.
    sent_ = sent < 0 ? waiting_.size() : sent_ + static_cast<size_t>(sent);
  }
  if (!has_backlog() || sent_ > kForget) {
    waiting_.erase(0, sent_);
    sent_ = 0;
  }
}

bool HostLink::receive(const Receive& receive) {
  for (const Early& one : std::exchange(early_, {})) sort(one.generation, one.message, receive);
  char bytes[64 << 10];
  for (;;) {
    const ssize_t got = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    received_.append(bytes, static_cast<size_t>(got));
    opener_.take(received_, [&](std::string_view frame) {
      uint32_t generation;
      if (frame.size() < sizeof generation) {
        throw Error(ErrorCode::kInternal, "a message between hosts is too short");
      }
      std::memcpy(&generation, frame.data(), sizeof generation);
      sort(generation, frame.substr(sizeof generation), receive);
    });
    if (static_cast<size_t>(got) < sizeof bytes) return true;
  }
}

void HostLink::sort(uint32_t generation, std::string_view message, const Receive& receive) {
  if (generation == generation_) receive(message);
  if (generation > generation_) early_.push_back({generation, std::string(message)});
}

void HostLink::close() {
  if (fd() >= 0) shutdown(fd(), SHUT_RDWR);
  socket_ = Fd();
  waiting_.clear();
  sent_ = 0;
}

}  // namespace sirtaki
