#include "math/dot.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "math/half.h"

namespace sirtaki {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kBlock = 512;

/// Independent partial sums, so that the compiler can use vector registers.
template <class T>
double dot(const T* a, const T* b, size_t count) {
  T lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) lanes[k] += a[i + k] * b[i + k];
  }
  for (; i < count; ++i) lanes[i % kLanes] += a[i] * b[i];
  double sum = 0;
  for (const T lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

/// Source `from[0 … count)` as T, converted into `space` if it is not.
template <class T, class Stored, T (*convert)(Stored)>
const T* as_block(const void* from, size_t at, size_t count, T* space) {
  const Stored* values = static_cast<const Stored*>(from) + at;
  for (size_t i = 0; i < count; ++i) space[i] = convert(values[i]);
  return space;
}

template <class T>
const T* in_place(const void* from, size_t at, size_t, T*) {
  return static_cast<const T*>(from) + at;
}

template <class T, class Load>
void add_gram_of(double* gram, const void* const* srcs, int n, size_t count, Load load) {
  T space_a[kBlock];
  T space_b[kBlock];
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t block = std::min(kBlock, count - at);
    for (int i = 0; i < n; ++i) {
      const T* a = load(srcs[i], at, block, space_a);
      gram[i * n + i] += dot(a, a, block);
      for (int j = i + 1; j < n; ++j) {
        gram[i * n + j] += dot(a, load(srcs[j], at, block, space_b), block);
      }
    }
  }
}

}  // namespace

void add_gram(double* gram, Dtype dtype, const void* const* srcs, int n, size_t count) {
  switch (dtype) {
    case Dtype::kF32:
      return add_gram_of<float>(gram, srcs, n, count, in_place<float>);
    case Dtype::kF64:
      return add_gram_of<double>(gram, srcs, n, count, in_place<double>);
    case Dtype::kF16:
      return add_gram_of<float>(gram, srcs, n, count, as_block<float, uint16_t, f16_to_f32>);
    case Dtype::kBF16:
      return add_gram_of<float>(gram, srcs, n, count, as_block<float, uint16_t, bf16_to_f32>);
    default:
      throw Error(ErrorCode::kInvalid,
                  std::string("Adasum needs floating point tensors, not ") + name(dtype));
  }
}

}  // namespace sirtaki
