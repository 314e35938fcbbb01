// Kernels of products, as reduce_kernels.h has those of reductions.
#pragma once

#include "math/kernel_formats.h"

namespace sirtaki {
namespace {

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

}  // namespace
}  // namespace sirtaki
