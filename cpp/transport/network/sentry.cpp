#include "transport/network/sentry.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "base/error.h"
#include "base/machine.h"

namespace sirtaki {

Sentry::Sentry(int fd, const Doorbell& doorbell, std::atomic<bool>& readable)
    : fd_(fd),
      doorbell_(doorbell),
      readable_(readable),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (stop_.get() < 0) throw Error(ErrorCode::kInternal, "cannot create an eventfd");
  thread_ = std::thread([this] { watch(); });
}

Sentry::~Sentry() {
  if (mark_.forked()) {
    new std::thread(std::move(thread_));  // it is the parent's
    return;
  }
  stopped_.store(true);
  machine::ring(stop_.get());
  arm();
  thread_.join();
}

void Sentry::arm() {
  if (armed_.exchange(1) == 0) armed_.notify_one();
}

void Sentry::watch() {
  pollfd polled[2] = {{fd_, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  for (;;) {
    armed_.wait(0);
    const int ready = machine::poll(polled, 2, -1);
    if (stopped_.load()) return;
    if (ready <= 0) continue;
    armed_.store(0);
    readable_.store(true);
    doorbell_.ring_own(kPair);
  }
}

}  // namespace sirtaki
