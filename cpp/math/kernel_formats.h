// How numbers lie in memory, and the type in which the kernels of each instruction set compute
// them. Each including file compiles this once, with SIRTAKI_VECTOR_BYTES (16, 32 or 64).
//
// Everything here has internal linkage and uses no function of the standard library: an inline
// function compiled for a newer processor must not become the copy that the whole library uses.
// Every level does the same IEEE operations on each element, so results agree bit for bit; this
// needs -ffp-contract=off.
#pragma once

#include <type_traits>

#if defined(__aarch64__)
#include <arm_neon.h>
#elif SIRTAKI_VECTOR_BYTES > 16
#include <immintrin.h>
#endif

#include "math/half.h"
#include "math/integers.h"
#include "math/reduce_levels.h"

#define SIRTAKI_INLINE [[gnu::always_inline]] inline

namespace sirtaki {
namespace {

using Byte = unsigned char;

template <typename T>
struct VectorOf {
  typedef T type __attribute__((vector_size(SIRTAKI_VECTOR_BYTES)));
};

// The same type without alignment. Not memcpy, which GCC 12 may split into several moves.
template <typename V>
struct Unaligned {
  typedef V type __attribute__((aligned(1), may_alias));
};

template <typename T>
using Vec = typename VectorOf<T>::type;

template <typename V>
SIRTAKI_INLINE V load(const Byte* from) {
  return *reinterpret_cast<const typename Unaligned<V>::type*>(from);
}

template <typename V>
SIRTAKI_INLINE void store(Byte* to, V value) {
  *reinterpret_cast<typename Unaligned<V>::type*>(to) = value;
}

// Not inlined, or GCC 12 derives a bound for `size` and uses the slow `rep movs`.
[[gnu::noinline]] void copy_bytes(Byte* to, const Byte* from, size_t size) {
  __builtin_memcpy(to, from, size);
}

// ---- numbers that are computed in the format they have in memory ----

// The vectors that stay in registers while the sources are folded.
template <typename V, int kCount>
struct Block {
  V part[kCount];
};

template <typename V, int kCount>
struct Plain {
  using Vector = V;
  static constexpr int kVectors = kCount;
  using Value = std::remove_reference_t<decltype(V{}[0])>;
  static constexpr size_t kElements = kVectors * sizeof(V) / sizeof(Value);
  using Acc = Block<V, kVectors>;

  // The size of `count` numbers.
  static constexpr size_t bytes(size_t count) { return count * sizeof(Value); }

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < kVectors; ++i) acc.part[i] = load<V>(from + i * sizeof(V));
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    for (int i = 0; i < kVectors; ++i) store(to + i * sizeof(V), acc.part[i]);
  }
};

template <typename V, int kVectors = 4>
struct Floats : Plain<V, kVectors> {
  using Wrapping = V;
  using typename Plain<V, kVectors>::Acc;

  SIRTAKI_INLINE static void multiply(Acc& acc, double factor) {
    const auto narrow = static_cast<typename Plain<V, kVectors>::Value>(factor);
    for (auto& part : acc.part) part = part * narrow;
  }
};

using Float32 = Floats<Vec<float>>;
using Float64 = Floats<Vec<double>>;

// Rounds `value` toward zero and clamps it to the range of its type; 0 for NaN.
template <typename T>
SIRTAKI_INLINE T truncate(double value) {
  constexpr bool kSigned = std::is_signed_v<T>;
  constexpr int kBits = 8 * sizeof(T) - (kSigned ? 1 : 0);
  constexpr T kHighest = static_cast<T>(~uint64_t{0} >> (64 - kBits));
  constexpr T kLowest = kSigned ? static_cast<T>(-kHighest - 1) : static_cast<T>(0);
  constexpr double kLimit = 2.0 * static_cast<double>(uint64_t{1} << (kBits - 1));
  if (value >= kLimit) return kHighest;
  if (value <= static_cast<double>(kLowest)) return kLowest;
  return value == value ? static_cast<T>(value) : static_cast<T>(0);
}

template <typename T>
struct Integers : Plain<Vec<T>, 4> {
  using Wrapping = Vec<std::make_unsigned_t<T>>;  // sums and products wrap around
  using typename Plain<Vec<T>, 4>::Acc;

  // Rare and long, so not inlined.
  [[gnu::noinline]] static void multiply(Acc& acc, double factor) {
    T values[Plain<Vec<T>, 4>::kElements];
    __builtin_memcpy(values, &acc, sizeof values);
    for (T& value : values) {
      if constexpr (sizeof(T) == sizeof(int64_t)) {
        value = scaled(value, factor);
      } else {
        value = truncate<T>(static_cast<double>(value) * factor);
      }
    }
    __builtin_memcpy(&acc, values, sizeof values);
  }
};

struct Bools : Integers<uint8_t> {
  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc = Integers<uint8_t>::load_block(from);
    for (auto& part : acc.part) part = reinterpret_cast<Vec<uint8_t>>(part != 0) & 1;
    return acc;
  }

  SIRTAKI_INLINE static void multiply(Acc&, double) {}
};

// Numbers of two parts, one after the other.
template <typename Parts>
struct Complex : Parts {
  static constexpr size_t kElements = Parts::kElements / 2;
  static constexpr size_t bytes(size_t count) { return Parts::bytes(2 * count); }
};

// ---- floats of 16 bits, computed as float32 ----

using Bits = Vec<uint32_t>;
using Convert = HalfBits<Bits, Vec<int32_t>, Vec<float>>;

// A number in the upper half of a 32-bit lane; a written lane has zeros in its lower half.
struct HalfLane {
  SIRTAKI_INLINE static Bits read(Bits upper) { return Convert::f16_to_f32(upper >> 16); }
  SIRTAKI_INLINE static Bits write(Bits bits) { return Convert::f32_to_f16(bits) << 16; }
};

struct BrainLane {
  SIRTAKI_INLINE static Bits read(Bits upper) { return upper; }
  SIRTAKI_INLINE static Bits write(Bits bits) { return Convert::f32_to_bf16(bits); }
};

// The same for numbers that were computed from bfloat16 alone.
struct CleanBrainLane : BrainLane {
  SIRTAKI_INLINE static Bits write(Bits bits) { return Convert::round_to_bf16(bits); }
};

// Each lane holds two numbers: part[2i] computes the low ones and part[2i + 1] the high ones, which
// needs no shuffles.
template <typename Lane>
struct Interleaved : Float32 {
  static constexpr size_t bytes(size_t count) { return count * sizeof(uint16_t); }

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < kVectors; i += 2) {
      const Bits both = load<Bits>(from + i / 2 * sizeof(Bits));
      acc.part[i] = __builtin_bit_cast(Vec<float>, Lane::read(both << 16));
      acc.part[i + 1] = __builtin_bit_cast(Vec<float>, Lane::read(both & 0xffff0000u));
    }
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    for (int i = 0; i < kVectors; i += 2) {
      const Bits low = Lane::write(__builtin_bit_cast(Bits, acc.part[i]));
      const Bits high = Lane::write(__builtin_bit_cast(Bits, acc.part[i + 1]));
      store(to + i / 2 * sizeof(Bits), (low >> 16) | (high & 0xffff0000u));
    }
  }

  // A NaN factor becomes one without payload, as HalfBits::round_to_bf16 requires.
  SIRTAKI_INLINE static void multiply(Acc& acc, double factor) {
    Float32::multiply(acc, factor == factor ? factor : __builtin_nan(""));
  }
};

// One for each float32 of a vector.
typedef uint16_t Shorts __attribute__((vector_size(SIRTAKI_VECTOR_BYTES / 2)));

template <typename Lane>
struct Converted {
  SIRTAKI_INLINE static Vec<float> read(Shorts shorts) {
    const Bits upper = __builtin_convertvector(shorts, Bits) << 16;
    return __builtin_bit_cast(Vec<float>, Lane::read(upper));
  }
  SIRTAKI_INLINE static Shorts write(Vec<float> value) {
    const Bits upper = Lane::write(__builtin_bit_cast(Bits, value));
    return __builtin_convertvector(upper >> 16, Shorts);
  }
};

// Numbers in the same order as their float32 forms.
template <typename Code>
struct Halves : Float32 {
  static constexpr size_t bytes(size_t count) { return count * sizeof(uint16_t); }

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < kVectors; ++i) {
      acc.part[i] = Code::read(load<Shorts>(from + i * sizeof(Shorts)));
    }
    return acc;
  }

  SIRTAKI_INLINE static void store_block(Byte* to, const Acc& acc) {
    for (int i = 0; i < kVectors; ++i) store(to + i * sizeof(Shorts), Code::write(acc.part[i]));
  }
};

using BrainCode = Converted<BrainLane>;
using Brain16 = Interleaved<CleanBrainLane>;

#if SIRTAKI_VECTOR_BYTES == 16 && !defined(__aarch64__)

using HalfCode = Converted<HalfLane>;
using Float16 = Interleaved<HalfLane>;

#else

// The processor's own conversions, which agree with half.h bit for bit.
struct HalfCode {
#if defined(__aarch64__)
  SIRTAKI_INLINE static Vec<float> read(Shorts half) {
    return __builtin_bit_cast(Vec<float>, vcvt_f32_f16(__builtin_bit_cast(float16x4_t, half)));
  }
  SIRTAKI_INLINE static Shorts write(Vec<float> value) {
    return __builtin_bit_cast(Shorts, vcvt_f16_f32(__builtin_bit_cast(float32x4_t, value)));
  }
#elif SIRTAKI_VECTOR_BYTES == 32
  SIRTAKI_INLINE static Vec<float> read(Shorts half) {
    return __builtin_bit_cast(Vec<float>, _mm256_cvtph_ps(__builtin_bit_cast(__m128i, half)));
  }
  SIRTAKI_INLINE static Shorts write(Vec<float> value) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const auto wide = __builtin_bit_cast(__m256, value);
    return __builtin_bit_cast(Shorts, _mm256_cvtps_ph(wide, kNearest));
  }
#else
  // GCC 12 warns of an uninitialised value in its own header for the forms without a mask.
  SIRTAKI_INLINE static Vec<float> read(Shorts half) {
    const auto narrow = __builtin_bit_cast(__m256i, half);
    return __builtin_bit_cast(Vec<float>, _mm512_maskz_cvtph_ps(0xffff, narrow));
  }
  SIRTAKI_INLINE static Shorts write(Vec<float> value) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const auto wide = __builtin_bit_cast(__m512, value);
    return __builtin_bit_cast(Shorts, _mm512_maskz_cvtps_ph(0xffff, wide, kNearest));
  }
#endif
};

using Float16 = Halves<HalfCode>;

#endif

}  // namespace
}  // namespace sirtaki
