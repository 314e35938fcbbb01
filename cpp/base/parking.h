#pragma once

#include <atomic>
#include <cstdint>

#include "base/machine.h"

namespace sirtaki {

/// Where threads sleep until a thread of this or another process has news for them. All-zero
/// memory is one where nobody sleeps.
///
/// Who wants to sleep reads the count of wake-ups, parks, looks whether there is news, and sleeps.
/// Who has news stores it, asks what is wanted, and wakes if it is that. No news is slept through
/// if it is stored and looked for sequentially consistently, as `wants` is: of two threads that
/// each store one thing and then look at the other's, at least one sees it.
class Parking {
 public:
  /// How often it was woken: wake-ups before this was read end no sleep.
  using Wakeups = uint32_t;

  Wakeups wakeups() const { return bell_.load(std::memory_order_acquire); }
  /// Says what it sleeps for, from now on: a set of bits, not empty. Then look for it.
  void park(uint32_t wanted) { wants_.store(wanted); }
  /// It does not sleep any more. Who sees this late wakes in vain.
  void unpark() { wants_.store(0, std::memory_order_relaxed); }
  /// Has it sleep for `more` as well, if it sleeps. Then look for it.
  void want_also(uint32_t more) {
    uint32_t wanted = wants_.load();
    while (wanted != 0 && !wants_.compare_exchange_weak(wanted, wanted | more)) {
    }
  }

  /// What is slept for; 0: nobody sleeps.
  uint32_t wants() const { return wants_.load(); }
  /// As `wants`, and of several who have news one alone is told to wake.
  uint32_t claim() { return wants() == 0 ? 0 : wants_.exchange(0); }

  /// Sleeps until woken, or for `timeout_ns` (negative: no limit). May return early.
  void sleep(Wakeups seen, int64_t timeout_ns = -1) { machine::sleep(bell_, seen, timeout_ns); }
  /// Wakes all that sleep here, whatever for. They see what was stored before.
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
