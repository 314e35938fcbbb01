#pragma once

#include <utility>

#include "math/kernel_formats.h"

namespace sirtaki {
namespace {

using Ints = Vec<int32_t>;
inline constexpr int kLanes = SIRTAKI_VECTOR_BYTES / sizeof(int32_t);
// One for each float32 of a vector.
typedef int8_t Chars __attribute__((vector_size(kLanes)));

// Compilers convert a vector by a factor of four element by element.
#if SIRTAKI_VECTOR_BYTES == 64
SIRTAKI_INLINE Ints widened(Chars narrow) {
  const auto bytes = __builtin_bit_cast(__m128i, narrow);
  return __builtin_bit_cast(Ints, _mm512_maskz_cvtepi8_epi32(0xffff, bytes));
}
SIRTAKI_INLINE Chars narrowed(Ints wide) {
  const auto all = __builtin_bit_cast(__m512i, wide);
  return __builtin_bit_cast(Chars, _mm512_maskz_cvtepi32_epi8(0xffff, all));
}
#elif SIRTAKI_VECTOR_BYTES == 32
SIRTAKI_INLINE Ints widened(Chars narrow) {
  const __m128i bytes = _mm_cvtsi64_si128(__builtin_bit_cast(int64_t, narrow));
  return __builtin_bit_cast(Ints, _mm256_cvtepi8_epi32(bytes));
}
SIRTAKI_INLINE Chars narrowed(Ints wide) {
  const __m256i lowest = _mm256_set1_epi32(0x0c080400);  // of each half's four numbers
  const __m256i bytes = _mm256_shuffle_epi8(__builtin_bit_cast(__m256i, wide), lowest);
  const __m128i high = _mm256_extracti128_si256(bytes, 1);
  const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), high);
  return __builtin_bit_cast(Chars, _mm_cvtsi128_si64(both));
}
#else
SIRTAKI_INLINE Ints widened(Chars narrow) { return __builtin_convertvector(narrow, Ints); }
SIRTAKI_INLINE Chars narrowed(Ints wide) { return __builtin_convertvector(wide, Chars); }
#endif

// The vectors that the 60 numbers of a block in `kParts` equal parts fill. The last of a part
// overlaps the one before it, so that vectors of every size fit.
template <int kParts>
struct Sixty : Floats<Vec<float>, kParts * ((60 / kParts + kLanes - 1) / kLanes)> {
  static constexpr size_t kElements = 60;
  using typename Floats<Vec<float>, Sixty::kVectors>::Acc;

  // The number with which a vector begins.
  static constexpr size_t place(int vector) {
    constexpr int kPart = 60 / kParts;
    constexpr int kOfPart = Sixty::kVectors / kParts;
    const int whole = vector % kOfPart * kLanes;
    const int last = kPart - kLanes;
    return static_cast<size_t>(vector / kOfPart * kPart + (whole < last ? whole : last));
  }

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < Sixty::kVectors; ++i) {
      acc.part[i] = load<Vec<float>>(from + place(i) * sizeof(float));
    }
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    for (int i = 0; i < Sixty::kVectors; ++i) store(to + place(i) * sizeof(float), acc.part[i]);
  }

  // The largest of the numbers' bits, or 0 if that is negative. As a magnitude's bits, those of NaN
  // and infinity are larger than all others.
  static constexpr int32_t kMagnitude = 0x7fffffff;
  SIRTAKI_INLINE static int32_t largest(const Acc& acc, int32_t mask) {
    Ints most = {};
    for (const Vec<float>& part : acc.part) {
      most = larger(most, __builtin_bit_cast(Ints, part) & mask);
    }
    return largest_lane(most, std::make_index_sequence<kLanes>());
  }

 private:
  SIRTAKI_INLINE static Ints larger(Ints a, Ints b) { return b > a ? b : a; }

  template <size_t... i>
  SIRTAKI_INLINE static int32_t largest_lane(Ints all, std::index_sequence<i...>) {
    if constexpr (kLanes > 8) all = larger(all, __builtin_shufflevector(all, all, (i ^ 8)...));
    if constexpr (kLanes > 4) all = larger(all, __builtin_shufflevector(all, all, (i ^ 4)...));
    all = larger(all, __builtin_shufflevector(all, all, (i ^ 2)...));
    all = larger(all, __builtin_shufflevector(all, all, (i ^ 1)...));
    return all[0];
  }
};

// A float32 and 60 bytes, which together fill a line: each number is the float32 times an integer
// from -127 to 127, and the largest has 127. Dettmers, "8-bit approximations for parallelism in
// deep learning" (2016), scales gradients by the largest one, and "8-bit optimizers via block-wise
// quantization" (2022) scales each block by its own.
//
// If a number of a block is not finite, all become NaN. If the largest is so small that the scale
// would not be a normal float32, all become 0.
struct Int8 : Sixty<1> {
  using Decoded = Sixty<1>;
  static constexpr const char* kName = "int8";
  static constexpr const char* kFormat = "integers up to 127, with a scale for every 60 of them";
  static constexpr size_t kBytes = 64;
  static constexpr float kMost = 127;
  static constexpr float kLeast = 0x1p-119f;

  static constexpr size_t bytes(size_t count) {
    return (count + kElements - 1) / kElements * kBytes;
  }

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    const Vec<float> scale = load<float>(from) - Vec<float>{};
    Acc acc;
    for (int i = 0; i < kVectors; ++i) {
      const Ints whole = widened(load<Chars>(from + sizeof(float) + place(i)));
      acc.part[i] = __builtin_convertvector(whole, Vec<float>) * scale;
    }
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    const int32_t bits = largest(acc, kMagnitude);
    const float most = __builtin_bit_cast(float, bits);
    const bool finite = bits < 0x7f800000;
    if (!finite || most < kLeast) return store_equal(to, finite ? 0.0f : __builtin_nanf(""));
    store(to, most / kMost);
    const float inverse = kMost / most;
    for (int i = 0; i < kVectors; ++i) {
      // The sum's last bits hold the nearest integer, ties to even.
      const Vec<float> sum = acc.part[i] * inverse + 0x1.8p23f;
      store(to + sizeof(float) + place(i), narrowed(__builtin_bit_cast(Ints, sum)));
    }
  }

 private:
  SIRTAKI_INLINE static void store_equal(Byte* to, float scale) {
    store(to, scale);
    for (int i = 0; i < kVectors; ++i) store(to + sizeof(float) + place(i), Chars{});
  }
};

}  // namespace
}  // namespace sirtaki
