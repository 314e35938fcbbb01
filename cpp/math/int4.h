#pragma once

#include "math/int8.h"

namespace sirtaki {
namespace {

// A bfloat16 and 30 bytes, half a line: each number is the bfloat16 times an integer from -8 to 7.
// The bfloat16 is that of the largest number divided by -8, so that its sign is the other one and
// the largest has -8. Of the numbers about as large with the other sign, 8 becomes 7.
//
// Byte i has the number i in its lower half, and the number 30 + i in its upper one.
//
// If a number of a block is not finite, all become NaN. If the largest is so small that the scale
// would not be a normal float32, all become 0.
struct Int4 : Sixty<2> {
  using Decoded = Sixty<2>;
  static constexpr const char* kName = "int4";
  static constexpr const char* kFormat = "integers from -8 to 7, with a scale for every 60 of them";
  static constexpr size_t kBytes = 32;
  static constexpr float kMost = 7;
  static constexpr float kLeast = 0x1p-119f;

  static constexpr size_t bytes(size_t count) {
    return (count + kElements - 1) / kElements * kBytes;
  }

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    const Vec<float> scale = as_float(load<uint16_t>(from)) - Vec<float>{};
    Acc acc;
    for (int i = 0; i < kHalf; ++i) {
      const Ints both = widened(load<Chars>(from + kScaleBytes + place(i)));
      acc.part[i] = signed_of(both) * scale;
      acc.part[i + kHalf] = signed_of(both >> 4) * scale;
    }
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    const int32_t bits = largest(acc, kMagnitude);
    const float most = __builtin_bit_cast(float, bits);
    const bool finite = bits < 0x7f800000;
    if (!finite || most < kLeast) return store_equal(to, finite ? 0 : 0x7fc0);
    const bool positive = largest(acc, ~0) == bits;
    const float step = positive ? most / -8 : most / 8;
    const auto upper = Upper::round_to_bf16(__builtin_bit_cast(uint32_t, step)) >> 16;
    const auto scale = static_cast<uint16_t>(upper);
    store(to, scale);
    const float inverse = 1 / as_float(scale);
    for (int i = 0; i < kHalf; ++i) {
      const Ints both =
          steps_of(acc.part[i], inverse) | (steps_of(acc.part[i + kHalf], inverse) << 4);
      store(to + kScaleBytes + place(i), narrowed(both));
    }
  }

 private:
  using Upper = HalfBits<uint32_t, int32_t, float>;
  static constexpr size_t kScaleBytes = sizeof(uint16_t);
  static constexpr int kHalf = kVectors / 2;

  SIRTAKI_INLINE static float as_float(uint16_t scale) {
    return __builtin_bit_cast(float, uint32_t{scale} << 16);
  }

  // The lower four bits of each as a signed number.
  SIRTAKI_INLINE static Vec<float> signed_of(Ints lower) {
    return __builtin_convertvector(((lower & 15) ^ 8) - 8, Vec<float>);
  }

  // The lower four bits of the nearest integers, ties to even: the last ones of the sum.
  SIRTAKI_INLINE static Ints steps_of(Vec<float> numbers, float inverse) {
    const Vec<float> steps = numbers * inverse;
    const Vec<float> sum = (steps < kMost ? steps : kMost - Vec<float>{}) + 0x1.8p23f;
    return __builtin_bit_cast(Ints, sum) & 15;
  }

  SIRTAKI_INLINE static void store_equal(Byte* to, uint16_t scale) {
    store(to, scale);
    for (int i = 0; i < kHalf; ++i) store(to + kScaleBytes + place(i), Chars{});
  }
};

}  // namespace
}  // namespace sirtaki
