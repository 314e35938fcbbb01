#pragma once

#include <atomic>
#include <thread>

#include "base/fd.h"
#include "base/fork_mark.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {

/// Waits in place of a driver that sleeps, which a bell wakes but no socket: rings when a
/// descriptor becomes readable.
class Sentry {
 public:
  /// `readable` is set before it rings: who goes to sleep meanwhile looks at that last.
  Sentry(int fd, const Doorbell& doorbell, std::atomic<bool>& readable);
  ~Sentry();
  Sentry(const Sentry&) = delete;
  Sentry& operator=(const Sentry&) = delete;

  /// The next time that there is something, ring once.
  void arm();

 private:
  void watch();

  const ForkMark mark_;
  const int fd_;
  const Doorbell doorbell_;
  std::atomic<bool>& readable_;
  Fd stop_;
  std::atomic<uint32_t> armed_{0};
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace sirtaki
