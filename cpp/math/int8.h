#pragma once

#include "math/kernel_formats.h"

namespace sirtaki {
namespace {

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourBits __attribute__((vector_size(16)));
typedef int8_t FourBytes __attribute__((vector_size(4)));

// A float32 and 60 bytes, which together fill a line: each number is the float32 times an integer
// from -127 to 127, and the largest has 127. Dettmers, "8-bit approximations for parallelism in
// deep learning" (2016), scales gradients by the largest one, and "8-bit optimizers via block-wise
// quantization" (2022) scales each block by its own.
//
// If a number of a block is not finite, all become NaN. If the largest is so small that the scale
// would not be a normal float32, all become 0.
struct Int8 : Floats<Four, 15> {
  using Decoded = Floats<Four, 15>;
  static constexpr const char* kName = "int8";
  static constexpr const char* kFormat = "integers up to 127, with a scale for every 60 of them";
  static constexpr size_t kBytes = 64;
  static constexpr float kMost = 127;
  static constexpr float kLeast = 0x1p-119f;

  static constexpr size_t bytes(size_t count) {
    return (count + kElements - 1) / kElements * kBytes;
  }

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    const Four scale = load<float>(from) - Four{};
    Acc acc;
    for (int i = 0; i < kVectors; ++i) {
      const auto whole = load<FourBytes>(from + sizeof(float) + 4 * i);
      acc.part[i] = __builtin_convertvector(whole, Four) * scale;
    }
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    const int32_t bits = largest(acc);
    const float most = __builtin_bit_cast(float, bits);
    const bool finite = bits < 0x7f800000;
    if (!finite || most < kLeast) return store_equal(to, finite ? 0.0f : __builtin_nanf(""));
    store(to, most / kMost);
    const float inverse = kMost / most;
    for (int i = 0; i < kVectors; ++i) {
      // The sum's last bits hold the nearest integer, ties to even.
      const Four sum = acc.part[i] * inverse + 0x1.8p23f;
      const auto whole = __builtin_convertvector(__builtin_bit_cast(FourBits, sum), FourBytes);
      store(to + sizeof(float) + 4 * i, whole);
    }
  }

  // The bits of the largest magnitude; those of NaN and infinity are larger than all others.
  SIRTAKI_INLINE static int32_t largest(const Acc& acc) {
    FourBits most = {};
    for (const Four& part : acc.part) {
      const FourBits bits = __builtin_bit_cast(FourBits, part) & 0x7fffffff;
      most = bits > most ? bits : most;
    }
    int32_t result = most[0];
    for (int i = 1; i < 4; ++i) result = most[i] > result ? most[i] : result;
    return result;
  }

 private:
  SIRTAKI_INLINE static void store_equal(Byte* to, float scale) {
    store(to, scale);
    for (int i = 0; i < kVectors; ++i) store(to + sizeof(float) + 4 * i, FourBytes{});
  }
};

}  // namespace
}  // namespace sirtaki
