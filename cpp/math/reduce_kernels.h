// The kernels of reductions: include after defining SIRTAKI_VECTOR_BYTES, then initialise a
// constant with SIRTAKI_KERNELS.
#pragma once

#include <utility>

#include "math/fixed_point_kernels.h"
#include "math/int4.h"
#include "math/int8.h"
#include "math/kernel_formats.h"
#include "math/product_kernels.h"

namespace sirtaki {
namespace {

// ---- folds ----

// Folds in the type in which a format wraps around, or in that of its numbers.
#define SIRTAKI_FOLD(Name, wraps, result)     \
  struct Name {                               \
    static constexpr bool kWraps = wraps;     \
    template <typename V>                     \
    SIRTAKI_INLINE static V apply(V a, V b) { \
      return result;                          \
    }                                         \
  };

SIRTAKI_FOLD(Sum, true, a + b)
SIRTAKI_FOLD(Product, true, a* b)
// `b != b` lets a NaN in b through; a NaN in a stays because every comparison with it is false.
SIRTAKI_FOLD(Min, false, ((b < a) | (b != b)) ? b : a)
SIRTAKI_FOLD(Max, false, ((b > a) | (b != b)) ? b : a)
SIRTAKI_FOLD(BitAnd, false, a& b)
SIRTAKI_FOLD(BitOr, false, a | b)
SIRTAKI_FOLD(BitXor, false, a ^ b)

struct ComplexProduct {
  static constexpr bool kWraps = false;
  template <typename V>
  SIRTAKI_INLINE static V apply(V a, V b) {
    return apply(a, b, std::make_index_sequence<sizeof(V) / sizeof(a[0])>());
  }

 private:
  // (ac - bd) in the even lanes, (ad + bc) in the odd ones.
  template <typename V, size_t... i>
  SIRTAKI_INLINE static V apply(V a, V b, std::index_sequence<i...>) {
    constexpr size_t kLanes = sizeof...(i);
    const V straight = a * __builtin_shufflevector(b, b, (i & ~size_t{1})...);
    const V crossed = __builtin_shufflevector(a, a, (i ^ 1)...) *  //
                      __builtin_shufflevector(b, b, (i | 1)...);
    return __builtin_shufflevector(straight - crossed, straight + crossed, (i + i % 2 * kLanes)...);
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

template <typename Source, bool kScaled>
SIRTAKI_INLINE typename Source::Acc load_source(const Byte* from, double pre) {
  auto acc = Source::load_block(from);
  if constexpr (kScaled) {
    if (pre != 1.0) Source::multiply(acc, pre);
  }
  return acc;
}

template <typename Source, typename Op>
SIRTAKI_INLINE void fold(typename Source::Acc& acc, const typename Source::Acc& next) {
  using V = typename Source::Vector;
  using Folded = std::conditional_t<Op::kWraps, typename Source::Wrapping, V>;
  for (int i = 0; i < Source::kVectors; ++i) {
    const auto folded = Op::apply(__builtin_bit_cast(Folded, acc.part[i]),
                                  __builtin_bit_cast(Folded, next.part[i]));
    acc.part[i] = __builtin_bit_cast(V, folded);
  }
}

template <typename Source, typename Target, bool kScaled>
SIRTAKI_INLINE void finish(const Pass& pass, size_t to, typename Source::Acc& acc) {
  if constexpr (kScaled) {
    if (pass.post != 1.0) Source::multiply(acc, pass.post);
  }
  Target::store_block(pass.dst + to, acc);
  if (pass.copy != nullptr) Target::store_block(pass.copy + to, acc);
}

// Everything is read before anything is written, so dst and copy may be sources.
template <typename Source, typename Op, typename Target, bool kScaled>
SIRTAKI_INLINE void reduce_blocks(const Pass& pass, size_t blocks) {
  constexpr size_t kSourceStep = Source::bytes(Source::kElements);
  constexpr size_t kTargetStep = Target::bytes(Target::kElements);
  const size_t end = blocks * kTargetStep;
  const Byte* const first = pass.src(0);
  if (pass.n == 2) {
    const Byte* const second = pass.src(1);
    for (size_t from = 0, to = 0; to < end; from += kSourceStep, to += kTargetStep) {
      auto acc = load_source<Source, kScaled>(first + from, pass.pre);
      fold<Source, Op>(acc, load_source<Source, kScaled>(second + from, pass.pre));
      finish<Source, Target, kScaled>(pass, to, acc);
    }
    return;
  }
  for (size_t from = 0, to = 0; to < end; from += kSourceStep, to += kTargetStep) {
    auto acc = load_source<Source, kScaled>(first + from, pass.pre);
    for (int k = 1; k < pass.n; ++k) {
      fold<Source, Op>(acc, load_source<Source, kScaled>(pass.src(k) + from, pass.pre));
    }
    finish<Source, Target, kScaled>(pass, to, acc);
  }
}

// Zeros pad the last elements, fewer than a block, to whole blocks.
template <typename Source, typename Op, typename Target>
[[gnu::noinline]] void reduce_rest(const Pass& pass, size_t begin, size_t count) {
  const size_t from = Source::bytes(begin), to = Target::bytes(begin);
  Byte padded[Source::bytes(Source::kElements)] = {};
  copy_bytes(padded, pass.src(0) + from, Source::bytes(count));
  auto acc = load_source<Source, true>(padded, pass.pre);
  for (int k = 1; k < pass.n; ++k) {
    copy_bytes(padded, pass.src(k) + from, Source::bytes(count));
    fold<Source, Op>(acc, load_source<Source, true>(padded, pass.pre));
  }
  Byte result[Target::bytes(Target::kElements)];
  Pass inside = pass;
  inside.dst = result;
  inside.copy = nullptr;
  finish<Source, Target, true>(inside, 0, acc);
  copy_bytes(pass.dst + to, result, Target::bytes(count));
  if (pass.copy != nullptr) copy_bytes(pass.copy + to, result, Target::bytes(count));
}

// Source and Target are memory formats; both compute their numbers in the same type.
template <typename Source, typename Op, typename Target = Source>
void reduce(void* dst, void* copy, const void* const* srcs, int n, size_t count, Scale scale) {
  const Pass pass = {
      static_cast<Byte*>(dst), static_cast<Byte*>(copy), srcs, n, scale.pre, scale.post};
  const size_t blocks = count / Source::kElements;
  if (scale.pre == 1.0 && scale.post == 1.0) {
    reduce_blocks<Source, Op, Target, false>(pass, blocks);
  } else {
    reduce_blocks<Source, Op, Target, true>(pass, blocks);
  }
  const size_t begin = blocks * Source::kElements;
  if (begin < count) reduce_rest<Source, Op, Target>(pass, begin, count - begin);
}

// ---- the tables ----

#define SIRTAKI_FOLDS(Source, Target)                                                     \
  {reduce<Source, Sum, Target>, reduce<Source, Min, Target>, reduce<Source, Max, Target>, \
   reduce<Source, Product, Target>}

#define SIRTAKI_FLOATS(Format) SIRTAKI_FOLDS(Format, Format)

#define SIRTAKI_INTEGERS(T)                                                               \
  {reduce<Integers<T>, Sum>,     reduce<Integers<T>, Min>,    reduce<Integers<T>, Max>,   \
   reduce<Integers<T>, Product>, reduce<Integers<T>, BitAnd>, reduce<Integers<T>, BitOr>, \
   reduce<Integers<T>, BitXor>}

// Bool is 0 or 1 once loaded, so "or" is the maximum and "and" the minimum.
#define SIRTAKI_BOOLS                                                                \
  {reduce<Bools, Max>, reduce<Bools, Min>, reduce<Bools, Max>,   reduce<Bools, Min>, \
   reduce<Bools, Min>, reduce<Bools, Max>, reduce<Bools, BitXor>}

#define SIRTAKI_COMPLEX(Parts) \
  {reduce<Complex<Parts>, Sum>, nullptr, nullptr, reduce<Complex<Parts>, ComplexProduct>}

// `Code` encodes and decodes numbers of `dtype`, which `Format` reduces.
template <typename Code, typename Format>
consteval Codec codec_of_dtype(Dtype dtype, const char* format) {
  using Coded = Halves<Code>;
  return {.name = name(dtype),
          .format = format,
          .block = 1,
          .block_bytes = 2,
          .dtype = dtype,
          .encoder = reduce<Float32, Sum, Coded>,
          .decode = SIRTAKI_FOLDS(Coded, Float32),
          .recode = SIRTAKI_FLOATS(Format)};
}

// `Coded` encodes and decodes blocks of numbers, as Int8 does.
template <typename Coded>
consteval Codec codec_of_blocks() {
  using Decoded = typename Coded::Decoded;
  return {.name = Coded::kName,
          .format = Coded::kFormat,
          .block = Coded::kElements,
          .block_bytes = Coded::kBytes,
          .dtype = Dtype::kF32,
          .encoder = reduce<Decoded, Sum, Coded>,
          .decode = {reduce<Coded, Sum, Decoded>},
          .recode = {reduce<Coded, Sum>}};
}

// The place of a codec is its number.
constexpr Codec kCodecs[] = {
    codec_of_dtype<HalfCode, Float16>(Dtype::kF16, "float16"),
    codec_of_dtype<BrainCode, Brain16>(Dtype::kBF16,
                                       "bfloat16: the range of float32 with 8 bits of precision"),
    codec_of_blocks<Int8>(),
    codec_of_blocks<Int4>(),
};

#define SIRTAKI_KERNELS                                                                           \
  {                                                                                               \
    {SIRTAKI_BOOLS,                                                                               \
     SIRTAKI_INTEGERS(uint8_t),                                                                   \
     SIRTAKI_INTEGERS(int8_t),                                                                    \
     SIRTAKI_INTEGERS(int16_t),                                                                   \
     SIRTAKI_INTEGERS(int32_t),                                                                   \
     SIRTAKI_INTEGERS(int64_t),                                                                   \
     SIRTAKI_FLOATS(Float16),                                                                     \
     SIRTAKI_FLOATS(Brain16),                                                                     \
     SIRTAKI_FLOATS(Float32),                                                                     \
     SIRTAKI_FLOATS(Float64),                                                                     \
     SIRTAKI_INTEGERS(uint16_t),                                                                  \
     SIRTAKI_INTEGERS(uint32_t),                                                                  \
     SIRTAKI_INTEGERS(uint64_t),                                                                  \
     SIRTAKI_COMPLEX(Halves<HalfCode>),                                                           \
     SIRTAKI_COMPLEX(Float32),                                                                    \
     SIRTAKI_COMPLEX(Float64)},                                                                   \
        {SIRTAKI_TILES(float), SIRTAKI_TILES(double)}, kCodecs, sizeof kCodecs / sizeof(Codec), { \
      SIRTAKI_FIXED(FixedF32), SIRTAKI_FIXED(FixedBF16), SIRTAKI_FIXED(FixedF16)                  \
    }                                                                                             \
  }

}  // namespace
}  // namespace sirtaki
