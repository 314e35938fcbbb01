// Kernels of products, the counterpart of reduce_kernels.h for reductions.
#pragma once

#include "math/kernel_formats.h"

namespace sirtaki {
namespace {

// Loads one number for each float64 of a vector and converts them.
template <typename T>
SIRTAKI_INLINE Vec<double> load_wide(const Byte* from) {
  typedef T Numbers __attribute__((vector_size(SIRTAKI_VECTOR_BYTES / sizeof(double) * sizeof(T))));
  return __builtin_convertvector(load<Numbers>(from), Vec<double>);
}

// Sums of the products of two sources with two others. Both pairs may be the same; then two of the
// four products are equal.
template <typename T, bool kSame>
struct Tile {
  Vec<double> sums[2][2];

  SIRTAKI_INLINE void add(const Byte* const (&at)[4], size_t from) {
    const auto a0 = load_wide<T>(at[0] + from), a1 = load_wide<T>(at[1] + from);
    const auto b0 = kSame ? a0 : load_wide<T>(at[2] + from);
    const auto b1 = kSame ? a1 : load_wide<T>(at[3] + from);
    sums[0][0] += a0 * b0;
    sums[0][1] += a0 * b1;
    if constexpr (!kSame) sums[1][0] += a1 * b0;
    sums[1][1] += a1 * b1;
  }
};

template <typename T, bool kSame>
void multiply_tile(double* products, const void* const* srcs, size_t count) {
  constexpr size_t kStep = sizeof(Vec<T>);
  const Byte* at[4];
  for (int k = 0; k < 4; ++k) at[k] = static_cast<const Byte*>(srcs[k]);
  // A separate tile for each half of a vector, so that additions need not wait for each other.
  Tile<T, kSame> low = {}, high = {};
  const auto add = [&](size_t from) {
    low.add(at, from);
    if constexpr (sizeof(T) < sizeof(double)) high.add(at, from + kStep / 2);
  };
  const size_t rest = count * sizeof(T) % kStep;
  const size_t end = count * sizeof(T) - rest;
  for (size_t from = 0; from < end; from += kStep) add(from);
  // The last elements go through padded vectors.
  Byte padded[4][kStep] = {};
  for (int k = 0; k < 4; ++k) {
    copy_bytes(padded[k], at[k] + end, rest);
    at[k] = padded[k];
  }
  add(0);
  for (int k = 0; k < 4; ++k) {
    const Vec<double> lanes = low.sums[k / 2][k % 2] + high.sums[k / 2][k % 2];
    products[k] = 0;
    for (size_t i = 0; i < sizeof lanes / sizeof(double); ++i) products[k] += lanes[i];
  }
}

#define SIRTAKI_TILES(T) {multiply_tile<T, false>, multiply_tile<T, true>}

}  // namespace
}  // namespace sirtaki
