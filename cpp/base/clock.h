#pragma once

#include <time.h>

#include <cstdint>

#include "base/machine.h"

namespace sirtaki {

/// A moment that never comes.
inline constexpr int64_t kForever = INT64_MAX;

/// Reads a system clock, in nanoseconds.
inline int64_t read_clock(clockid_t clock) {
  if (machine::Simulation* const other = machine::simulated()) [[unlikely]]
    return other->now_ns();
  timespec t;
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// The longest time limit, thirty years: code may add it to a moment, and add up a few of them.
inline constexpr int64_t kLongestNs = 1'000'000'000'000'000'000;

/// A time limit in nanoseconds; 0 if it is negative or not a number.
inline int64_t ns_of(double seconds) {
  if (!(seconds > 0)) return 0;
  const double ns = seconds * 1e9;
  return ns < static_cast<double>(kLongestNs) ? static_cast<int64_t>(ns) : kLongestNs;
}

/// Monotonic time in nanoseconds.
inline int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

/// Monotonic time at the kernel's last tick, some milliseconds ago; reading it is much cheaper.
inline int64_t recent_ns() { return read_clock(CLOCK_MONOTONIC_COARSE); }

/// Hints to the processor that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace sirtaki
