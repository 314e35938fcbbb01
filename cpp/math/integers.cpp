#include "math/integers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace sirtaki {
namespace {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

constexpr double kExact = 0x1p53;  // up to here float64 represents all integers
constexpr int kMantissa = 53;
constexpr Int128 kHighest = static_cast<Int128>(~Uint128{0} >> 1);

/// The value for a number that does not fit into 128 bits.
Int128 beyond(bool negative) { return negative ? -kHighest : kHighest; }

Int128 truncated(double value) {
  return std::abs(value) < 0x1p126 ? static_cast<Int128>(value) : beyond(value < 0);
}

/// value * 2^exponent.
Int128 shifted(Int128 value, int exponent) {
  const bool negative = value < 0;
  Uint128 size = static_cast<Uint128>(negative ? -value : value);
  if (exponent <= -127) return 0;
  if (exponent < 0) {
    size >>= -exponent;
  } else if (size != 0) {
    if (exponent >= 127 || size > static_cast<Uint128>(kHighest) >> exponent) {
      return beyond(negative);
    }
    size <<= exponent;
  }
  return negative ? -static_cast<Int128>(size) : static_cast<Int128>(size);
}

Int128 scaled_wide(Int128 value, double factor) {
  if (factor == 1.0) return value;
  if (value == 0 || factor == 0 || std::isnan(factor)) return 0;
  const double near = static_cast<double>(value) * factor;
  const bool small = std::abs(near) < kExact && std::abs(static_cast<double>(value)) <= kExact;
  if (small || std::isinf(factor)) return truncated(near);
  int exponent = 0;
  auto mantissa = static_cast<int64_t>(std::ldexp(std::frexp(factor, &exponent), kMantissa));
  const int zeros = std::countr_zero(static_cast<uint64_t>(mantissa));
  mantissa >>= zeros;
  exponent += zeros - kMantissa;
  Int128 product;
  if (__builtin_mul_overflow(value, Int128{mantissa}, &product)) return truncated(near);
  return shifted(product, exponent);
}

template <typename T>
T clamped(Int128 value) {
  using Limits = std::numeric_limits<T>;
  return static_cast<T>(std::clamp<Int128>(value, Limits::min(), Limits::max()));
}

/// The count of numbers that are summed together, in memory that stays in the innermost cache.
constexpr size_t kPiece = 256;

template <typename T>
constexpr bool is_short = sizeof(T) < sizeof(int64_t);

/// Holds the sum of all ranks' numbers, of which there are fewer than 2^31.
template <typename T>
using Sum = std::conditional_t<is_short<T>, int64_t, Int128>;

/// A 128-bit division takes ten times as long as a 64-bit one.
template <typename Wide>
Wide divided(Wide sum, int n) {
  const auto low = static_cast<int64_t>(sum);
  return low == sum ? low / n : sum / n;
}

template <typename T>
void average_plain(T* numbers, const std::byte* const* srcs, int n, size_t count) {
  Sum<T> sums[kPiece] = {};
  for (int k = 0; k < n; ++k) {
    std::memcpy(numbers, srcs[k], count * sizeof(T));
    for (size_t i = 0; i < count; ++i) sums[i] += numbers[i];
  }
  for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<T>(divided(sums[i], n));
}

template <typename T>
void average_scaled(T* numbers, const std::byte* const* srcs, int n, size_t count, Scale scale) {
  using Scaled = std::conditional_t<is_short<T>, int64_t, T>;
  Int128 sums[kPiece] = {};
  for (int k = 0; k < n; ++k) {
    std::memcpy(numbers, srcs[k], count * sizeof(T));
    for (size_t i = 0; i < count; ++i) sums[i] += scaled(Scaled{numbers[i]}, scale.pre);
  }
  for (size_t i = 0; i < count; ++i) {
    numbers[i] = clamped<T>(divided(scaled_wide(sums[i], scale.post), n));
  }
}

template <typename T>
void average(void* dst, void* copy, const void* const* srcs, int n, size_t count, Scale scale) {
  const bool scales = scale.pre != 1.0 || scale.post != 1.0;
  std::vector<const std::byte*> at(static_cast<size_t>(n));
  T numbers[kPiece];
  for (size_t begin = 0; begin < count; begin += kPiece) {
    const size_t piece = std::min(kPiece, count - begin);
    const size_t offset = begin * sizeof(T);
    for (size_t k = 0; k < at.size(); ++k) at[k] = static_cast<const std::byte*>(srcs[k]) + offset;
    if (scales) {
      average_scaled(numbers, at.data(), n, piece, scale);
    } else {
      average_plain(numbers, at.data(), n, piece);
    }
    std::memcpy(static_cast<std::byte*>(dst) + offset, numbers, piece * sizeof(T));
    if (copy != nullptr) {
      std::memcpy(static_cast<std::byte*>(copy) + offset, numbers, piece * sizeof(T));
    }
  }
}

}  // namespace

int64_t scaled(int64_t value, double factor) {
  return clamped<int64_t>(scaled_wide(value, factor));
}

uint64_t scaled(uint64_t value, double factor) {
  return clamped<uint64_t>(scaled_wide(value, factor));
}

ReduceFn average_fn(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8:
      return average<uint8_t>;
    case Dtype::kI8:
      return average<int8_t>;
    case Dtype::kI16:
      return average<int16_t>;
    case Dtype::kI32:
      return average<int32_t>;
    case Dtype::kI64:
      return average<int64_t>;
    case Dtype::kU16:
      return average<uint16_t>;
    case Dtype::kU32:
      return average<uint32_t>;
    case Dtype::kU64:
      return average<uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace sirtaki
