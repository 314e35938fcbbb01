#pragma once

#include <cstddef>
#include <cstdint>

#include "math/dtype.h"

namespace sirtaki {

// Sums that do not depend on their order: each number is rounded once to a multiple of
// 2^-exponent, multiples are added as integers, and the sum is rounded once. Of float32, bfloat16
// and float16. The kernels compute in float64, in a thread that has a FloatState.

/// The largest magnitude of finite numbers, as the bits of a float32, and whether there were
/// others.
struct Magnitudes {
  uint32_t largest;
  bool special;  ///< an infinity or NaN, which counts as 0 in the sums
};

/// How to treat the sums.
enum class FixedMode : uint8_t { kMeasure, kSet, kAdd };

/// Adds numbers to `sums`, or sets them, or leaves them alone. Sums of magnitudes of 2^(61 -
/// exponent) and more have no meaning.
using ToFixedFn = Magnitudes (*)(int64_t* sums, const void* values, size_t count, int exponent);
/// Stores sums / (divisor * 2^exponent), rounded to nearest, ties to even.
using FromFixedFn = void (*)(void* values, const int64_t* sums, size_t count, int exponent,
                             int64_t divisor);

/// Throw Error(kInvalid) for other dtypes.
ToFixedFn to_fixed_fn(Dtype dtype, FixedMode mode);
FromFixedFn from_fixed_fn(Dtype dtype);

/// A floating-point format with at most 24 bits of precision, in terms of which one number is
/// rounded.
struct RoundTo {
  int precision;      ///< bits of the significand
  int least;          ///< the exponent of the smallest subnormal number
  uint32_t infinity;  ///< its bits
};

/// The bits of the magnitude of sum / (divisor * 2^exponent), for any sum and 0 < divisor < 2^31.
uint32_t round_fixed(uint64_t magnitude, int exponent, int64_t divisor, RoundTo format);

}  // namespace sirtaki
