// The kernels of reductions: include after defining SIRTAKI_VECTOR_BYTES, then initialise a
// constant with SIRTAKI_KERNELS.
#pragma once

#include "math/kernel_formats.h"
#include "math/product_kernels.h"

namespace sirtaki {
namespace {

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
