// How dtypes lie in memory, and in what the kernels of each instruction set compute them. Compiled
// once for each, by way of what includes this, with SIRTAKI_VECTOR_BYTES (16, 32 or 64).
//
// Everything here has internal linkage and nothing is taken from the standard library: an inline
// function compiled for a newer processor must not become the copy that the whole library uses.
// Every level does the same IEEE operations on each element, so results agree bit for bit; this
// needs -ffp-contract=off.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#elif SIRTAKI_VECTOR_BYTES > 16
#include <immintrin.h>
#endif

#include "math/half.h"
#include "math/reduce_levels.h"
#include "math/truncate.h"

#define SIRTAKI_INLINE [[gnu::always_inline]] inline

namespace sirtaki {
namespace {

using Byte = unsigned char;

template <typename T>
struct VectorOf {
  typedef T type __attribute__((vector_size(SIRTAKI_VECTOR_BYTES)));
};

// The same value anywhere in memory. Not memcpy, which GCC 12 may do in pieces.
template <typename V>
struct Unaligned {
  typedef V type __attribute__((aligned(1), may_alias));
};

template <typename T>
using Vec = typename VectorOf<T>::type;

// As many elements as are kept in registers while the sources are folded.
template <typename T, int kVectors>
struct Block {
  Vec<T> part[kVectors];
};

template <typename V>
SIRTAKI_INLINE V load(const Byte* from) {
  return *reinterpret_cast<const typename Unaligned<V>::type*>(from);
}

template <typename V>
SIRTAKI_INLINE void store(Byte* to, V value) {
  *reinterpret_cast<typename Unaligned<V>::type*>(to) = value;
}

// Not inlined, else GCC 12 knows a bound for `size` and takes the slow `rep movs`.
[[gnu::noinline]] void copy_bytes(Byte* to, const Byte* from, size_t size) {
  __builtin_memcpy(to, from, size);
}

// ---- formats ----

template <typename T>
struct Plain {
  static constexpr int kVectors = 4;
  static constexpr size_t kElements = kVectors * sizeof(Vec<T>) / sizeof(T);
  static constexpr size_t kSize = sizeof(T);
  static constexpr size_t kSourceShare = 1;  // a source has this share of kSize
  using Acc = Block<T, kVectors>;

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < kVectors; ++i) acc.part[i] = load<Vec<T>>(from + i * sizeof(Vec<T>));
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    for (int i = 0; i < kVectors; ++i) store(to + i * sizeof(Vec<T>), acc.part[i]);
  }
};

template <typename T>
struct Float : Plain<T> {
  using Wrapping = Vec<T>;

  SIRTAKI_INLINE static void multiply(typename Plain<T>::Acc& acc, double factor) {
    const T narrow = static_cast<T>(factor);
    for (auto& part : acc.part) part = part * narrow;
  }
};

// U is T without its sign: sums and products wrap around.
template <typename T, typename U>
struct Integer : Plain<T> {
  using Wrapping = Vec<U>;

  // Rare and long, so not inlined.
  [[gnu::noinline]] static void multiply(typename Plain<T>::Acc& acc, double factor) {
    T values[Plain<T>::kElements];
    __builtin_memcpy(values, &acc, sizeof values);
    for (T& value : values) value = truncate<T>(static_cast<double>(value) * factor);
    __builtin_memcpy(&acc, values, sizeof values);
  }
};

struct Bool : Integer<uint8_t, uint8_t> {
  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc = Plain<uint8_t>::load_block(from);
    for (auto& part : acc.part) part = reinterpret_cast<Vec<uint8_t>>(part != 0) & 1;
    return acc;
  }

  SIRTAKI_INLINE static void multiply(Acc&, double) {}
};

// Two 16-bit floats lie in each 32-bit lane: the low ones are computed in part[2i], the high ones
// in part[2i + 1], which needs no shuffles.
struct Half {
  static constexpr int kVectors = 4;
  static constexpr size_t kElements = kVectors * sizeof(Vec<float>) / sizeof(float);
  static constexpr size_t kSize = 2;
  static constexpr size_t kSourceShare = 1;
  using Acc = Block<float, kVectors>;
  using Wrapping = Vec<float>;
  using Bits = Vec<uint32_t>;
  using Convert = HalfBits<Bits, Vec<int32_t>, Vec<float>>;

  // A NaN is made one without payload, as HalfBits::round_to_bf16 wants.
  SIRTAKI_INLINE static void multiply(Acc& acc, double factor) {
    Float<float>::multiply(acc, factor == factor ? factor : __builtin_nan(""));
  }
};

struct Brain16 : Half {
  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < kVectors; i += 2) {
      const Bits both = load<Bits>(from + i / 2 * sizeof(Bits));
      acc.part[i] = __builtin_bit_cast(Vec<float>, both << 16);
      acc.part[i + 1] = __builtin_bit_cast(Vec<float>, both & 0xffff0000u);
    }
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    for (int i = 0; i < kVectors; i += 2) {
      const Bits low = Convert::round_to_bf16(__builtin_bit_cast(Bits, acc.part[i]));
      const Bits high = Convert::round_to_bf16(__builtin_bit_cast(Bits, acc.part[i + 1]));
      store(to + i / 2 * sizeof(Bits), (low >> 16) | (high & 0xffff0000u));
    }
  }
};

#if SIRTAKI_VECTOR_BYTES == 16 && !defined(__aarch64__)

struct Float16 : Half {
  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < kVectors; i += 2) {
      const Bits both = load<Bits>(from + i / 2 * sizeof(Bits));
      const Bits low = Convert::f16_to_f32(both & 0xffffu);
      const Bits high = Convert::f16_to_f32(both >> 16);
      acc.part[i] = __builtin_bit_cast(Vec<float>, low);
      acc.part[i + 1] = __builtin_bit_cast(Vec<float>, high);
    }
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    for (int i = 0; i < kVectors; i += 2) {
      const Bits low = __builtin_bit_cast(Bits, acc.part[i]);
      const Bits high = __builtin_bit_cast(Bits, acc.part[i + 1]);
      store(to + i / 2 * sizeof(Bits), Convert::f32_to_f16(low) | Convert::f32_to_f16(high) << 16);
    }
  }
};

#else

#if defined(__aarch64__)
SIRTAKI_INLINE Vec<float> widen(uint16x4_t half) {
  return __builtin_bit_cast(Vec<float>, vcvt_f32_f16(vreinterpret_f16_u16(half)));
}
SIRTAKI_INLINE uint16x4_t narrow(Vec<float> value) {
  return vreinterpret_u16_f16(vcvt_f16_f32(__builtin_bit_cast(float32x4_t, value)));
}
using Packed = uint16x4_t;
#elif SIRTAKI_VECTOR_BYTES == 32
SIRTAKI_INLINE __m256 widen(__m128i half) { return _mm256_cvtph_ps(half); }
SIRTAKI_INLINE __m128i narrow(__m256 value) {
  return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
using Packed = __m128i;
#else
// The forms without a mask make GCC 12 warn of an uninitialised value in its own header.
SIRTAKI_INLINE __m512 widen(__m256i half) { return _mm512_maskz_cvtph_ps(0xffff, half); }
SIRTAKI_INLINE __m256i narrow(__m512 value) {
  return _mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
using Packed = __m256i;
#endif

// The processor's own conversions, which agree with half.h bit for bit.
struct Float16 : Half {
  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < kVectors; ++i) acc.part[i] = widen(load<Packed>(from + i * sizeof(Packed)));
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    for (int i = 0; i < kVectors; ++i) store(to + i * sizeof(Packed), narrow(acc.part[i]));
  }
};

#endif

}  // namespace
}  // namespace sirtaki
