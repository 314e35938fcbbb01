#include "transport/network/watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/thread.h"

namespace sirtaki {
namespace {

constexpr int64_t kPauseNs = 10'000'000;
constexpr int64_t kSoonNs = 1'000'000;
constexpr int64_t kBeatNs = 500'000'000;

enum class Heard { kNothing, kEnd, kLater };

/// A peer writes zeros to its link to wake this end. Other bytes come after its engine has ended,
/// and are for the successor of the watcher.
Heard hear(int socket) {
  char bytes[64];
  for (;;) {
    const ssize_t got = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
    if (got == 0) return Heard::kEnd;
    if (got < 0) return errno == EAGAIN || errno == EINTR ? Heard::kNothing : Heard::kEnd;
    const char* const end = std::find_if(bytes, bytes + got, [](char byte) { return byte != 0; });
    if (end == bytes) return Heard::kLater;
    [[maybe_unused]] const ssize_t taken =
        recv(socket, bytes, static_cast<size_t>(end - bytes), MSG_DONTWAIT);
  }
}

}  // namespace

Fd process_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return Fd();
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

Watcher::Watcher(std::span<const Link> links, std::function<bool(int)> lost, Service* service,
                 int heartbeat)
    : links_(links),
      lost_(std::move(lost)),
      service_(service),
      heartbeat_(heartbeat),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_.get() < 0) throw Error(ErrorCode::kInternal, "cannot create an eventfd");
  for (const Link& link : links_) processes_.push_back(process_of(link.socket.get()));
  for (const Link& link : links_) sleep_.polled.push_back({link.socket.get(), POLLIN, 0});
  for (const Fd& process : processes_) sleep_.polled.push_back({process.get(), POLLIN, 0});
  sleep_.polled.push_back({wake_.get(), POLLIN, 0});
}

Watcher::~Watcher() { end(); }

void Watcher::start() {
  thread_ = start_thread([this] {
    while (!stop_.load()) {
      sleep_.polled.resize(own());
      const int64_t limit = service_ != nullptr ? service_->prepare(sleep_) : -1;
      look(heartbeat_ >= 0 ? beat(limit) : limit);
      if (service_ != nullptr) service_->serve(sleep_);
    }
    if (heartbeat_ >= 0) write_beat(0);
  });
}

/// Beats when it is time to. Returns how long the thread may sleep, at most `limit_ns`.
int64_t Watcher::beat(int64_t limit_ns) {
  const int64_t now = now_ns();
  if (now - beaten_ns_ >= kBeatNs) {
    write_beat(now);
    beaten_ns_ = now;
  }
  const int64_t next = beaten_ns_ + kBeatNs - now;
  return limit_ns < 0 ? next : std::min(limit_ns, next);
}

void Watcher::write_beat(int64_t time) const {
  [[maybe_unused]] const ssize_t written = pwrite(heartbeat_, &time, sizeof time, 0);
}

void Watcher::end() {
  stop();
  if (thread_.joinable()) thread_.join();
}

void Watcher::stop() {
  if (!stop_.exchange(true)) wake();
}

void Watcher::wake() const { machine::ring(wake_.get()); }

void Watcher::wake_peers() const {
  for (const Link& link : links_) {
    // A full socket has bytes that wake the peer; polling notices a closed one.
    [[maybe_unused]] const ssize_t sent =
        send(link.socket.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void Watcher::look(int64_t limit_ns) {
  std::vector<pollfd>& polled = sleep_.polled;
  if (!undecided_.empty()) limit_ns = kSoonNs;
  if (machine::poll(polled.data(), polled.size(), limit_ns) < 0) {
    if (errno != EINTR) machine::nap(kPauseNs);  // out of memory, perhaps only for a moment
    for (pollfd& entry : polled) entry.revents = 0;
  }
  const size_t count = links_.size();
  if (polled[2 * count].revents != 0) {
    uint64_t times;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &times, sizeof times);
  }
  for (size_t i = 0; i < count; ++i) {
    const Heard heard = polled[i].revents != 0 ? hear(polled[i].fd) : Heard::kNothing;
    if (heard == Heard::kLater) polled[i].fd = -1;
    const bool exited = polled[count + i].revents != 0;
    if (heard != Heard::kEnd && !exited) continue;
    polled[i].fd = polled[count + i].fd = -1;  // poll ignores negative descriptors
    undecided_.push_back(links_[i].rank);
  }
  std::erase_if(undecided_, lost_);
}

}  // namespace sirtaki
