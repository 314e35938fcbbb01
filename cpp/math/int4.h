#pragma once

#include "math/int8.h"

namespace sirtaki {
namespace {

// A bfloat16 and 30 bytes, half a line: each number is the bfloat16 times an integer from -8 to 7.
// The bfloat16 is that of the largest number divided by -8, so that its sign is the other one and
// the largest has -8. Of the numbers about as large with the other sign, 8 becomes 7.
//
// Byte i of each eight numbers, and of the last four, has the number i in its lower half, and the
// number 4 + i, or 2 + i, in its upper one.
//
// If a number of a block is not finite, all become NaN. If the largest is so small that the scale
// would not be a normal float32, all become 0.
struct Int4 : Floats<Four, 15> {
  using Decoded = Floats<Four, 15>;
  static constexpr const char* kName = "int4";
  static constexpr const char* kFormat = "integers from -8 to 7, with a scale for every 60 of them";
  static constexpr size_t kBytes = 32;
  static constexpr float kMost = 7;
  static constexpr float kLeast = 0x1p-119f;

  static constexpr size_t bytes(size_t count) {
    return (count + kElements - 1) / kElements * kBytes;
  }

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    const Four scale = widened(load<uint16_t>(from)) - Four{};
    Acc acc;
    for (int i = 0; i < kVectors - 1; i += 2) {
      const auto both = load<FourBytes>(from + kScaleBytes + 2 * i);
      const auto wide = __builtin_convertvector(both, FourBits);
      acc.part[i] = signed_of(wide) * scale;
      acc.part[i + 1] = signed_of(wide >> 4) * scale;
    }
    const int32_t rest = load<uint16_t>(from + kBytes - 2);
    acc.part[kVectors - 1] = signed_of(FourBits{rest, rest >> 8, rest >> 4, rest >> 12}) * scale;
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    const int32_t bits = Int8::largest(acc);
    const float most = __builtin_bit_cast(float, bits);
    const bool finite = bits < 0x7f800000;
    if (!finite || most < kLeast) return store_equal(to, finite ? 0 : 0x7fc0);
    const float step = has(acc, most) ? most / -8 : most / 8;
    const auto upper = Upper::round_to_bf16(__builtin_bit_cast(uint32_t, step)) >> 16;
    const auto scale = static_cast<uint16_t>(upper);
    store(to, scale);
    const float inverse = 1 / widened(scale);
    FourBits whole[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      const Four steps = acc.part[i] * inverse;
      // The sum's last bits hold the nearest integer, ties to even.
      const Four sum = (steps < kMost ? steps : kMost - Four{}) + 0x1.8p23f;
      whole[i] = __builtin_bit_cast(FourBits, sum) & 15;
    }
    for (int i = 0; i < kVectors - 1; i += 2) {
      const FourBits both = whole[i] | (whole[i + 1] << 4);
      store(to + kScaleBytes + 2 * i, __builtin_convertvector(both, FourBytes));
    }
    const FourBits last = whole[kVectors - 1];
    const int32_t rest = last[0] | last[2] << 4 | last[1] << 8 | last[3] << 12;
    store(to + kBytes - 2, static_cast<uint16_t>(rest));
  }

 private:
  using Upper = HalfBits<uint32_t, int32_t, float>;
  static constexpr size_t kScaleBytes = sizeof(uint16_t);

  SIRTAKI_INLINE static float widened(uint16_t scale) {
    return __builtin_bit_cast(float, uint32_t{scale} << 16);
  }

  // The lower four bits of each as a signed number.
  SIRTAKI_INLINE static Four signed_of(FourBits lower) {
    return __builtin_convertvector(((lower & 15) ^ 8) - 8, Four);
  }

  SIRTAKI_INLINE static bool has(const Acc& acc, float number) {
    FourBits found = {};
    for (const Four& part : acc.part) found |= part == number;
    return (found[0] | found[1] | found[2] | found[3]) != 0;
  }

  SIRTAKI_INLINE static void store_equal(Byte* to, uint16_t scale) {
    store(to, scale);
    for (int i = 0; i < kVectors; ++i) store(to + kScaleBytes + 2 * i, uint16_t{});
  }
};

}  // namespace
}  // namespace sirtaki
