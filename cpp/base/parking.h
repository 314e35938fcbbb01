#pragma once

#include <atomic>
#include <cstdint>

#include "base/machine.h"

namespace sirtaki {

/// A place where threads sleep until a thread of this or another process has news for them. In
/// all-zero memory nobody sleeps.
///
/// A sleeper reads the count of wake-ups, parks, checks for news, and sleeps. A notifier stores its
/// news, reads `wants`, and wakes the sleeper if that is among them. No sleeper misses news that is
/// stored and checked for with sequential consistency, as `wants` is: of two threads that each
/// store one thing and then check the other's, at least one sees it.
class Parking {
 public:
  /// The number of wake-ups: those before it was read do not end a sleep.
  using Wakeups = uint32_t;

  Wakeups wakeups() const { return bell_.load(std::memory_order_acquire); }
  /// Declares what the thread sleeps for: a set of bits, not empty. The caller then checks for it.
  void park(uint32_t wanted) { wants_.store(wanted); }
  /// The thread no longer sleeps. A notifier that sees this late wakes in vain.
  void unpark() { wants_.store(0, std::memory_order_relaxed); }
  /// Adds `more` to what a sleeping thread waits for. The caller then checks for it.
  void want_also(uint32_t more) {
    uint32_t wanted = wants_.load();
    while (wanted != 0 && !wants_.compare_exchange_weak(wanted, wanted | more)) {
    }
  }

  /// The bits that a sleeper waits for; 0: nobody sleeps.
  uint32_t wants() const { return wants_.load(); }
  /// Like `wants`, but only one of several notifiers gets the bits, and so wakes the sleeper.
  uint32_t claim() { return wants() == 0 ? 0 : wants_.exchange(0); }

  /// Sleeps until woken, or for `timeout_ns` (negative: no limit). May return early.
  void sleep(Wakeups seen, int64_t timeout_ns = -1) { machine::sleep(bell_, seen, timeout_ns); }
  /// Wakes all that sleep here, whatever they wait for. They see all stores made before.
  void wake() {
    bell_.fetch_add(1, std::memory_order_release);
    machine::wake(bell_);
  }

 private:
  std::atomic<uint32_t> wants_;
  std::atomic<uint32_t> bell_;
};

static_assert(sizeof(Parking) == 2 * sizeof(uint32_t));
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace sirtaki
