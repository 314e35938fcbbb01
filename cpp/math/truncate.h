#pragma once

#include <cstdint>

namespace sirtaki {

// The integer next to `value` toward zero, clamped to the range of its type; 0 for NaN. Inlined for
// the reason that half.h gives.
template <typename T>
[[gnu::always_inline]] constexpr T truncate(double value) {
  constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);
  constexpr int kBits = 8 * sizeof(T) - (kSigned ? 1 : 0);
  constexpr T kHighest = static_cast<T>(~uint64_t{0} >> (64 - kBits));
  constexpr T kLowest = kSigned ? static_cast<T>(-kHighest - 1) : static_cast<T>(0);
  constexpr double kLimit = 2.0 * static_cast<double>(uint64_t{1} << (kBits - 1));
  if (value >= kLimit) return kHighest;
  if (value <= static_cast<double>(kLowest)) return kLowest;
  return value == value ? static_cast<T>(value) : static_cast<T>(0);
}

}  // namespace sirtaki
