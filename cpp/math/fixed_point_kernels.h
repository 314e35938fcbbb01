// The kernels of sums in fixed point, for reduce_kernels.h.
#pragma once

#include <utility>

#include "math/fixed_point.h"
#include "math/kernel_formats.h"

namespace sirtaki {
namespace {

using Fixed = Vec<int64_t>;
using FixedBits = Vec<uint64_t>;
using Doubles = Vec<double>;
inline constexpr size_t kFixedLanes = SIRTAKI_VECTOR_BYTES / 8;
inline constexpr size_t kFixedBlock = 2 * kFixedLanes;  // a vector of float32

template <typename T, size_t lanes>
struct LanesOf {
  typedef T type __attribute__((vector_size(lanes * sizeof(T))));
};

// How numbers lie in memory, the bits of the float32 that each is, and the rounding to them.
struct FixedF32 {
  using Word = uint32_t;
  static constexpr RoundTo kFormat{24, -149, 0x7f800000};
  template <typename V>
  SIRTAKI_INLINE static V widen(V bits) {
    return bits;
  }
};

struct FixedBF16 {
  using Word = uint16_t;
  static constexpr RoundTo kFormat{8, -133, 0x7f80};
  template <typename V>
  SIRTAKI_INLINE static V widen(V bits) {
    return bits << 16;
  }
};

struct FixedF16 {
  using Word = uint16_t;
  static constexpr RoundTo kFormat{11, -24, 0x7c00};
  template <typename V>
  SIRTAKI_INLINE static V widen(V bits) {
    return HalfBits<V, Vec<int32_t>, Vec<float>>::f16_to_f32(bits);
  }
};

// A double of this magnitude has its units in the last bit.
constexpr double kUnits = 0x1.8p52;

SIRTAKI_INLINE FixedBits units_of(Doubles sum) { return __builtin_bit_cast(FixedBits, sum); }

// The nearest integer of magnitude up to 2^61, ties to even: a multiple of 2^32, and the rest.
// Beyond it wraps around.
SIRTAKI_INLINE FixedBits to_integer(Doubles value) {
  const Doubles upper = value * 0x1p-32 + kUnits;
  const Doubles lower = (value - (upper - kUnits) * 0x1p32) + kUnits;
  const FixedBits zero = units_of(Doubles{} + kUnits);
  return ((units_of(upper) - zero) << 32) + (units_of(lower) - zero);
}

struct Seen {
  Vec<int32_t> largest;
  Vec<int32_t> special;
};

template <FixedMode mode>
SIRTAKI_INLINE void add_half(int64_t* sums, Doubles values, double unit) {
  Byte* const to = reinterpret_cast<Byte*>(sums);
  const FixedBits multiple = to_integer(values * unit);
  store(to, mode == FixedMode::kSet ? multiple : load<FixedBits>(to) + multiple);
}

template <typename Format, FixedMode mode, size_t... i>
SIRTAKI_INLINE void add_block(int64_t* sums, const Byte* from, double unit, Seen& seen,
                              std::index_sequence<i...>) {
  using Words = typename LanesOf<typename Format::Word, kFixedBlock>::type;
  using Bits = Vec<uint32_t>;
  const Bits bits = Format::widen(__builtin_convertvector(load<Words>(from), Bits));
  const auto magnitude = __builtin_bit_cast(Vec<int32_t>, bits & 0x7fffffffu);
  const Vec<int32_t> special = magnitude >= 0x7f800000;
  const Vec<int32_t> finite = magnitude & ~special;
  seen.special |= special;
  seen.largest = seen.largest > finite ? seen.largest : finite;
  if constexpr (mode != FixedMode::kMeasure) {
    const auto value =
        __builtin_bit_cast(Vec<float>, __builtin_bit_cast(Vec<int32_t>, bits) & ~special);
    const auto lower = __builtin_shufflevector(value, value, i...);
    const auto upper = __builtin_shufflevector(value, value, (kFixedLanes + i)...);
    add_half<mode>(sums, __builtin_convertvector(lower, Doubles), unit);
    add_half<mode>(sums + kFixedLanes, __builtin_convertvector(upper, Doubles), unit);
  }
}

template <typename Format, FixedMode mode>
Magnitudes add_fixed(int64_t* sums, const void* values, size_t count, int exponent) {
  constexpr size_t kBytes = sizeof(typename Format::Word);
  constexpr auto kLanes = std::make_index_sequence<kFixedLanes>();
  const Byte* const from = static_cast<const Byte*>(values);
  const double unit = __builtin_bit_cast(double, int64_t{1023 + exponent} << 52);
  Seen seen{};
  size_t at = 0;
  for (; at + kFixedBlock <= count; at += kFixedBlock) {
    add_block<Format, mode>(sums + at, from + at * kBytes, unit, seen, kLanes);
  }
  if (at < count) {
    const size_t rest = count - at;
    int64_t padded_sums[kFixedBlock] = {};
    Byte padded[kFixedBlock * kBytes] = {};
    Byte* const sum_bytes = reinterpret_cast<Byte*>(padded_sums);
    copy_bytes(padded, from + at * kBytes, rest * kBytes);
    if constexpr (mode == FixedMode::kAdd) {
      copy_bytes(sum_bytes, reinterpret_cast<const Byte*>(sums + at), rest * sizeof(int64_t));
    }
    add_block<Format, mode>(padded_sums, padded, unit, seen, kLanes);
    if constexpr (mode != FixedMode::kMeasure) {
      copy_bytes(reinterpret_cast<Byte*>(sums + at), sum_bytes, rest * sizeof(int64_t));
    }
  }
  Magnitudes found{0, false};
  for (size_t i = 0; i < kFixedBlock; ++i) {
    const auto lane = static_cast<uint32_t>(seen.largest[i]);
    found.largest = lane > found.largest ? lane : found.largest;
    found.special |= seen.special[i] != 0;
  }
  return found;
}

SIRTAKI_INLINE Doubles to_double(Fixed sum) {
  constexpr uint64_t kMagic = 0x4330'0000'0000'0000;  // 2^52: its last bits are a double's units
  const FixedBits biased = __builtin_bit_cast(FixedBits, sum) ^ (uint64_t{1} << 63);
  const auto upper = __builtin_bit_cast(Doubles, (biased >> 32) | kMagic);
  const auto lower = __builtin_bit_cast(Doubles, (biased & 0xffffffff) | kMagic);
  return (upper - (0x1p52 + 0x1p31)) * 0x1p32 + (lower - 0x1p52);
}

// How float64 is rounded to a format by integers: its exponents and the bits that it has more.
template <typename Format>
struct FromDouble {
  static constexpr RoundTo kFormat = Format::kFormat;
  static constexpr int kShift = 53 - kFormat.precision;
  static constexpr int64_t kHalf = int64_t{1} << (kShift - 1);
  static constexpr int64_t kExponents = int64_t{1021 + kFormat.least + kFormat.precision};
  static constexpr int64_t kLeast = (kExponents + 1) << 52;  ///< the smallest normal number
  static constexpr int64_t kInfinity = (kExponents << 52) + (int64_t{kFormat.infinity} << kShift);
  static constexpr int64_t kLargest = kInfinity - (int64_t{1} << kShift);
};

// How sums are rounded: factor is 1 / whole, and whole is divisor * 2^exponent.
struct Rounding {
  double factor;
  double whole;
};

// Float64 finds the two numbers of the format between which a result lies, and the product of their
// middle and `whole` decides. That is exact for sums below 2^53 and divisors below 2^28. Returns
// which results may be wrong: of larger sums near a middle, and outside the normal numbers.
template <typename Format>
SIRTAKI_INLINE Fixed round_vector(Byte* to, const int64_t* sums, const Rounding& rounding) {
  using From = FromDouble<Format>;
  using Words = typename LanesOf<typename Format::Word, kFixedLanes>::type;
  constexpr int64_t kNear = 4;
  constexpr int64_t kBelow = 2 * From::kHalf - 1;
  constexpr int kSign = 8 * sizeof(typename Format::Word) - 1;
  const Fixed sum = load<Fixed>(reinterpret_cast<const Byte*>(sums));
  const Fixed nonzero = sum != 0;
  const Fixed absolute = __builtin_bit_cast(Fixed, to_double(sum)) & INT64_MAX;
  const auto size = __builtin_bit_cast(Doubles, absolute);
  const Fixed quotient = __builtin_bit_cast(Fixed, size * rounding.factor);
  const Fixed middle = (quotient & ~kBelow) | From::kHalf;
  const Doubles at_middle = __builtin_bit_cast(Doubles, middle) * rounding.whole;
  const Fixed lower = quotient >> From::kShift;
  const Fixed up = (size > at_middle) | ((size == at_middle) & ((lower & 1) != 0));
  const Fixed rounded = lower - (From::kExponents << (52 - From::kShift)) - up;
  const Fixed sign = (sum < 0) & (int64_t{1} << kSign);
  store(to, __builtin_convertvector((rounded & nonzero) | sign, Words));
  const Fixed from_middle = (quotient & kBelow) - (From::kHalf - kNear);
  const Fixed near = (from_middle >= 0) & (from_middle <= 2 * kNear);
  const Fixed large = absolute >= int64_t{1023 + 53} << 52;
  const Fixed outside = (quotient < From::kLeast) | (quotient >= From::kLargest);
  return nonzero & ((near & large) | outside);
}

template <typename Format>
[[gnu::noinline]] void round_exactly(Byte* to, const int64_t* sums, size_t count, int exponent,
                                     int64_t divisor) {
  using Word = typename Format::Word;
  constexpr int kSign = 8 * sizeof(Word) - 1;
  for (size_t i = 0; i < count; ++i) {
    const bool negative = sums[i] < 0;
    const auto magnitude = static_cast<uint64_t>(negative ? -sums[i] : sums[i]);
    const uint32_t bits = round_fixed(magnitude, exponent, divisor, Format::kFormat);
    const auto word = static_cast<Word>(bits | static_cast<uint32_t>(negative) << kSign);
    copy_bytes(to + i * sizeof word, reinterpret_cast<const Byte*>(&word), sizeof word);
  }
}

template <typename Format>
void from_fixed(void* values, const int64_t* sums, size_t count, int exponent, int64_t divisor) {
  constexpr size_t kBytes = sizeof(typename Format::Word);
  constexpr size_t kVectors = 8;
  constexpr size_t kBlock = kVectors * kFixedLanes;
  Byte* const to = static_cast<Byte*>(values);
  const double unit = __builtin_bit_cast(double, int64_t{1023 + exponent} << 52);
  const double whole = unit * static_cast<double>(divisor);
  const Rounding rounding{1.0 / whole, whole};
  const size_t in_vectors = divisor < int64_t{1} << 28 ? count : 0;
  size_t at = 0;
  for (; at + kBlock <= in_vectors; at += kBlock) {
    Fixed doubtful{};
    for (size_t i = at; i < at + kBlock; i += kFixedLanes) {
      doubtful |= round_vector<Format>(to + i * kBytes, sums + i, rounding);
    }
    int64_t any = 0;
    for (size_t i = 0; i < kFixedLanes; ++i) any |= doubtful[i];
    if (any != 0) round_exactly<Format>(to + at * kBytes, sums + at, kBlock, exponent, divisor);
  }
  round_exactly<Format>(to + at * kBytes, sums + at, count - at, exponent, divisor);
}

#define SIRTAKI_FIXED(Format)                                                   \
  {{add_fixed<Format, FixedMode::kMeasure>, add_fixed<Format, FixedMode::kSet>, \
    add_fixed<Format, FixedMode::kAdd>},                                        \
   from_fixed<Format>}

}  // namespace
}  // namespace sirtaki
