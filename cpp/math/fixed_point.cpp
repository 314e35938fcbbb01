#include "math/fixed_point.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"
#include "math/reduce_levels.h"

namespace sirtaki {
namespace {

const FixedKernels& kernels_of(Dtype dtype) {
  const Kernels& best = best_kernels();
  if (dtype == Dtype::kF32) return best.fixed[0];
  if (dtype == Dtype::kBF16) return best.fixed[1];
  if (dtype == Dtype::kF16) return best.fixed[2];
  throw Error(ErrorCode::kInvalid, std::string("there are no exact sums of ") + name(dtype));
}

}  // namespace

ToFixedFn to_fixed_fn(Dtype dtype, FixedMode mode) {
  return kernels_of(dtype).to[static_cast<size_t>(mode)];
}

FromFixedFn from_fixed_fn(Dtype dtype) { return kernels_of(dtype).from; }

uint32_t round_fixed(uint64_t magnitude, int exponent, int64_t divisor, RoundTo format) {
  __extension__ using Wide = unsigned __int128;
  constexpr int kAhead = 64;
  if (magnitude == 0) return 0;
  const auto parts = static_cast<Wide>(divisor);
  const Wide scaled = static_cast<Wide>(magnitude) << kAhead;
  const Wide quotient = scaled / parts;  // of at least 33 bits, more than any precision
  const bool inexact = scaled % parts != 0;
  const auto upper = static_cast<uint64_t>(quotient >> 64);
  const int bits =
      upper != 0 ? 64 + std::bit_width(upper) : std::bit_width(static_cast<uint64_t>(quotient));
  // The last bit that is kept is that of 2^last.
  const int last = std::max(bits - format.precision - kAhead - exponent, format.least);
  const int dropped = last + kAhead + exponent;
  if (dropped > bits + 1) return 0;
  const Wide half = Wide{1} << (dropped - 1);
  const Wide rest = quotient & (2 * half - 1);
  auto kept = static_cast<uint32_t>(quotient >> (dropped - 1) >> 1);
  if (rest > half || (rest == half && (inexact || kept % 2 == 1))) ++kept;
  // A carry out of the significand makes the next exponent; both are correct.
  const int64_t field = last - format.least;
  const int64_t result = (field << (format.precision - 1)) + kept;
  return result < format.infinity ? static_cast<uint32_t>(result) : format.infinity;
}

}  // namespace sirtaki
