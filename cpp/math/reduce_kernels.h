// The reduction kernels, compiled once per instruction set: include after defining
// SIRTAKI_VECTOR_BYTES (16, 32 or 64), then initialise a constant with SIRTAKI_KERNELS.
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

// ---- formats: how a dtype lies in memory, and in what it is computed ----

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
  using Wide = T;
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

// ---- folds ----

struct Sum {
  template <typename Wrapping, typename V>
  SIRTAKI_INLINE static V apply(V a, V b) {
    return __builtin_bit_cast(V, __builtin_bit_cast(Wrapping, a) + __builtin_bit_cast(Wrapping, b));
  }
};

struct Product {
  template <typename Wrapping, typename V>
  SIRTAKI_INLINE static V apply(V a, V b) {
    return __builtin_bit_cast(V, __builtin_bit_cast(Wrapping, a) * __builtin_bit_cast(Wrapping, b));
  }
};

// `b != b` lets a NaN in b through; a NaN in a stays because every comparison with it is false.
struct Min {
  template <typename Wrapping, typename V>
  SIRTAKI_INLINE static V apply(V a, V b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};

struct Max {
  template <typename Wrapping, typename V>
  SIRTAKI_INLINE static V apply(V a, V b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};

struct BitAnd {
  template <typename Wrapping, typename V>
  SIRTAKI_INLINE static V apply(V a, V b) {
    return a & b;
  }
};

struct BitOr {
  template <typename Wrapping, typename V>
  SIRTAKI_INLINE static V apply(V a, V b) {
    return a | b;
  }
};

struct BitXor {
  template <typename Wrapping, typename V>
  SIRTAKI_INLINE static V apply(V a, V b) {
    return a ^ b;
  }
};

// ---- loops ----

struct Pass {
  Byte* dst;
  Byte* copy;
  const void* const* srcs;
  int n;
  double pre;
  double post;

  SIRTAKI_INLINE const Byte* src(int k) const { return static_cast<const Byte*>(srcs[k]); }
};

template <typename Format, bool kScaled>
SIRTAKI_INLINE typename Format::Acc load_source(const Byte* from, double pre) {
  auto acc = Format::load_block(from);
  if constexpr (kScaled) {
    if (pre != 1.0) Format::multiply(acc, pre);
  }
  return acc;
}

template <typename Format, typename Op>
SIRTAKI_INLINE void fold(typename Format::Acc& acc, const typename Format::Acc& next) {
  for (int i = 0; i < Format::kVectors; ++i) {
    acc.part[i] = Op::template apply<typename Format::Wrapping>(acc.part[i], next.part[i]);
  }
}

template <typename Format, bool kScaled>
SIRTAKI_INLINE void finish(const Pass& pass, size_t at, typename Format::Acc& acc) {
  if constexpr (kScaled) {
    if (pass.post != 1.0) Format::multiply(acc, pass.post);
  }
  Format::store_block(pass.dst + at, acc);
  if (pass.copy != nullptr) Format::store_block(pass.copy + at, acc);
}

// Whole blocks; `end` in bytes of dst. Everything is read before anything is written, so dst and
// copy may be sources.
template <typename Format, typename Op, bool kScaled>
SIRTAKI_INLINE void reduce_blocks(const Pass& pass, size_t end) {
  constexpr size_t kStep = Format::kElements * Format::kSize;
  constexpr size_t kShare = Format::kSourceShare;
  if (pass.n == 2) {
    const Byte* const first = pass.src(0);
    const Byte* const second = pass.src(1);
    for (size_t at = 0; at < end; at += kStep) {
      auto acc = load_source<Format, kScaled>(first + at / kShare, pass.pre);
      fold<Format, Op>(acc, load_source<Format, kScaled>(second + at / kShare, pass.pre));
      finish<Format, kScaled>(pass, at, acc);
    }
    return;
  }
  for (size_t at = 0; at < end; at += kStep) {
    auto acc = load_source<Format, kScaled>(pass.src(0) + at / kShare, pass.pre);
    for (int k = 1; k < pass.n; ++k) {
      fold<Format, Op>(acc, load_source<Format, kScaled>(pass.src(k) + at / kShare, pass.pre));
    }
    finish<Format, kScaled>(pass, at, acc);
  }
}

// Not inlined, else GCC 12 knows a bound for `size` and takes the slow `rep movs`.
[[gnu::noinline]] void copy_bytes(Byte* to, const Byte* from, size_t size) {
  __builtin_memcpy(to, from, size);
}

// The last elements, fewer than a block, go through a block that is padded with zeros.
template <typename Format, typename Op>
[[gnu::noinline]] void reduce_rest(const Pass& pass, size_t begin, size_t bytes) {
  constexpr size_t kShare = Format::kSourceShare;
  Byte padded[Format::kElements * Format::kSize] = {};
  copy_bytes(padded, pass.src(0) + begin / kShare, bytes / kShare);
  auto acc = load_source<Format, true>(padded, pass.pre);
  for (int k = 1; k < pass.n; ++k) {
    copy_bytes(padded, pass.src(k) + begin / kShare, bytes / kShare);
    fold<Format, Op>(acc, load_source<Format, true>(padded, pass.pre));
  }
  Pass inside = pass;
  inside.dst = padded;
  inside.copy = nullptr;
  finish<Format, true>(inside, 0, acc);
  copy_bytes(pass.dst + begin, padded, bytes);
  if (pass.copy != nullptr) copy_bytes(pass.copy + begin, padded, bytes);
}

template <typename Format, typename Op>
void reduce(void* dst, void* copy, const void* const* srcs, int n, size_t count, Scale scale) {
  const Pass pass = {
      static_cast<Byte*>(dst), static_cast<Byte*>(copy), srcs, n, scale.pre, scale.post};
  const size_t rest = count % Format::kElements;
  const size_t end = (count - rest) * Format::kSize;
  if (scale.pre == 1.0 && scale.post == 1.0) {
    reduce_blocks<Format, Op, false>(pass, end);
  } else {
    reduce_blocks<Format, Op, true>(pass, end);
  }
  if (rest != 0) reduce_rest<Format, Op>(pass, end, rest * Format::kSize);
}

// ---- products ----

typedef float HalfVec __attribute__((vector_size(SIRTAKI_VECTOR_BYTES / 2)));

// The lower or the upper half of a vector of what a format computes in, as float64.
template <int kHalf>
SIRTAKI_INLINE Vec<double> widened(Vec<float> numbers) {
  struct {
    HalfVec halves[2];
  } split = __builtin_bit_cast(decltype(split), numbers);
  return __builtin_convertvector(split.halves[kHalf], Vec<double>);
}

template <int kHalf>
SIRTAKI_INLINE Vec<double> widened(Vec<double> numbers) {
  return numbers;
}

// Sums of the products of two sources with two others; apart for each half of a vector, so that
// additions need not wait for each other.
struct Tile {
  Vec<double> sums[2][2][2];

  template <int kHalf, typename V>
  SIRTAKI_INLINE void add(V a0, V a1, V b0, V b1) {
    const Vec<double> a[] = {widened<kHalf>(a0), widened<kHalf>(a1)};
    const Vec<double> b[] = {widened<kHalf>(b0), widened<kHalf>(b1)};
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) sums[kHalf][i][j] += a[i] * b[j];
    }
  }

  // Of sources that are the others too: one product of the four comes twice.
  template <int kHalf, typename V>
  SIRTAKI_INLINE void add(V a0, V a1) {
    const Vec<double> a[] = {widened<kHalf>(a0), widened<kHalf>(a1)};
    sums[kHalf][0][0] += a[0] * a[0];
    sums[kHalf][0][1] += a[0] * a[1];
    sums[kHalf][1][1] += a[1] * a[1];
  }
};

template <typename Format, bool kSame>
SIRTAKI_INLINE void multiply_block(Tile& tile, const Byte* const (&at)[4]) {
  constexpr bool kWidens = sizeof(Format::Acc::part[0][0]) < sizeof(double);
  const auto a0 = Format::load_block(at[0]);
  const auto a1 = Format::load_block(at[1]);
  if constexpr (kSame) {
    for (int i = 0; i < Format::kVectors; ++i) {
      tile.add<0>(a0.part[i], a1.part[i]);
      if constexpr (kWidens) tile.add<1>(a0.part[i], a1.part[i]);
    }
  } else {
    const auto b0 = Format::load_block(at[2]);
    const auto b1 = Format::load_block(at[3]);
    for (int i = 0; i < Format::kVectors; ++i) {
      tile.add<0>(a0.part[i], a1.part[i], b0.part[i], b1.part[i]);
      if constexpr (kWidens) tile.add<1>(a0.part[i], a1.part[i], b0.part[i], b1.part[i]);
    }
  }
}

// The last elements go through padded blocks, as in a sum.
template <typename Format, bool kSame>
void multiply_tile(double* products, const void* const* srcs, size_t count) {
  constexpr size_t kStep = Format::kElements * Format::kSize;
  const Byte* at[4];
  for (int k = 0; k < 4; ++k) at[k] = static_cast<const Byte*>(srcs[k]);
  Tile tile = {};
  for (size_t blocks = count / Format::kElements; blocks > 0; --blocks) {
    multiply_block<Format, kSame>(tile, at);
    for (const Byte*& source : at) source += kStep;
  }
  if (const size_t rest = count % Format::kElements * Format::kSize; rest != 0) {
    Byte padded[4][kStep] = {};
    for (int k = 0; k < 4; ++k) {
      copy_bytes(padded[k], at[k], rest);
      at[k] = padded[k];
    }
    multiply_block<Format, kSame>(tile, at);
  }
  for (int k = 0; k < 4; ++k) {
    const Vec<double> lanes = tile.sums[0][k / 2][k % 2] + tile.sums[1][k / 2][k % 2];
    products[k] = 0;
    for (size_t i = 0; i < sizeof lanes / sizeof(double); ++i) products[k] += lanes[i];
  }
}

#define SIRTAKI_TILES(...) {multiply_tile<__VA_ARGS__, false>, multiply_tile<__VA_ARGS__, true>}

#define SIRTAKI_FLOATS(...)                                                      \
  {reduce<__VA_ARGS__, Sum>, reduce<__VA_ARGS__, Min>, reduce<__VA_ARGS__, Max>, \
   reduce<__VA_ARGS__, Product>}

#define SIRTAKI_INTEGERS(...)                                                   \
  {reduce<Integer<__VA_ARGS__>, Sum>,    reduce<Integer<__VA_ARGS__>, Min>,     \
   reduce<Integer<__VA_ARGS__>, Max>,    reduce<Integer<__VA_ARGS__>, Product>, \
   reduce<Integer<__VA_ARGS__>, BitAnd>, reduce<Integer<__VA_ARGS__>, BitOr>,   \
   reduce<Integer<__VA_ARGS__>, BitXor>}

// Bool is 0 or 1 once loaded, so "or" is the maximum and "and" the minimum.
#define SIRTAKI_BOOLS                                                            \
  {reduce<Bool, Max>, reduce<Bool, Min>, reduce<Bool, Max>,   reduce<Bool, Min>, \
   reduce<Bool, Min>, reduce<Bool, Max>, reduce<Bool, BitXor>}

#define SIRTAKI_KERNELS                                         \
  {                                                             \
    {SIRTAKI_BOOLS,                                             \
     SIRTAKI_INTEGERS(uint8_t, uint8_t),                        \
     SIRTAKI_INTEGERS(int8_t, uint8_t),                         \
     SIRTAKI_INTEGERS(int16_t, uint16_t),                       \
     SIRTAKI_INTEGERS(int32_t, uint32_t),                       \
     SIRTAKI_INTEGERS(int64_t, uint64_t),                       \
     SIRTAKI_FLOATS(Float16),                                   \
     SIRTAKI_FLOATS(Brain16),                                   \
     SIRTAKI_FLOATS(Float<float>),                              \
     SIRTAKI_FLOATS(Float<double>)},                            \
    {                                                           \
      SIRTAKI_TILES(Float<float>), SIRTAKI_TILES(Float<double>) \
    }                                                           \
  }

}  // namespace
}  // namespace sirtaki
