#pragma once

#include <time.h>

#include <cstdint>

#include "base/machine.h"

namespace sirtaki {

/// A moment that never comes.
inline constexpr int64_t kForever = INT64_MAX;

/// What a clock of the system says, in nanoseconds.
inline int64_t read_clock(clockid_t clock) {
  if (machine::Simulation* const other = machine::simulated()) [[unlikely]]
    return other->now_ns();
  timespec t;
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// Monotonic time in nanoseconds.
inline int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

/// The same at a fraction of the price, as it was at the kernel's last tick: some milliseconds ago.
inline int64_t recent_ns() { return read_clock(CLOCK_MONOTONIC_COARSE); }

/// Tells the processor that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace sirtaki
