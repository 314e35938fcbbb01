#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace sirtaki {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
static_assert(std::atomic<uint32_t>::is_always_lock_free);

/// Sleeps while `word == seen`, at most `timeout_ns` (negative: no limit). May return early.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t timeout_ns = -1) {
  timespec limit{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen,
          timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
}

/// Wakes every sleeper on `word`, in any process that maps it.
inline void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sirtaki
