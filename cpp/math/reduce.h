#pragma once

#include <cstddef>
#include <cstdint>

#include "math/dtype.h"

namespace sirtaki {

enum class ReduceOp : uint8_t {
  kAverage = 0,
  kSum = 1,
  kAdasum = 2,
  kMin = 3,
  kMax = 4,
  kProduct = 5,
  kBitAnd = 6,
  kBitOr = 7,
  kBitXor = 8
};

inline constexpr int kReduceOpCount = 9;

// The name users know.
constexpr const char* name(ReduceOp op) {
  constexpr const char* kNames[kReduceOpCount] = {"Average", "Sum",    "Adasum", "Min",   "Max",
                                                  "Product", "BitAnd", "BitOr",  "BitXor"};
  return kNames[static_cast<size_t>(op)];
}

// Whether it combines bits: integers and bools only.
constexpr bool is_bitwise(ReduceOp op) { return op >= ReduceOp::kBitAnd; }

// Whether a reduction is defined for a dtype.
constexpr bool has_reduction(Dtype dtype, ReduceOp op) {
  if (op == ReduceOp::kAdasum) return is_floating(dtype);
  if (op == ReduceOp::kMin || op == ReduceOp::kMax)
    return is_reducible(dtype) && !is_complex(dtype);
  if (is_bitwise(op)) return is_reducible(dtype) && !is_floating(dtype) && !is_complex(dtype);
  return is_reducible(dtype);
}

struct Scale {
  double pre = 1.0;
  double post = 1.0;
  bool operator==(const Scale&) const = default;
};

// dst[i] = post * op over k of (pre * srcs[k][i]), folded in order k = 0 .. n-1, n >= 1.
// `copy`, when not null, receives the same values in the same pass.
// dst and copy may each be equal to any source; buffers must not overlap partly.
// Buffers need no alignment.
//
// float16, bfloat16: computed in float32, rounded to nearest even once, when stored.
// float32: factors are rounded to float32. float64: computed in float64.
// Integers: products with pre (per source) and post are truncated toward zero and clamped to the
//   type's range; the fold between them wraps around. Their averages are in math/integers.h.
// Complex numbers: their parts are floats of that size; a product is (ac - bd) + (ad + bc)i.
// has_reduction excludes what is undefined.
// Bool: any nonzero byte is true; sum, max and bitwise or are "or", product,
//   min and bitwise and are "and"; no scaling.
// A factor of exactly 1.0 changes nothing. min and max give NaN where any source is NaN.
using ReduceFn = void (*)(void* dst, void* copy, const void* const* srcs, int n, size_t count,
                          Scale scale);

// The fastest function for this processor. Results are bitwise the same on all processors of one
// architecture, except for the payloads of NaNs. kAverage divides integers by the number of sources
// and returns the sum of all others: the caller folds 1/n into Scale::post. Throws Error(kInvalid)
// for kAdasum and what has_reduction excludes.
ReduceFn reduce_fn(Dtype dtype, ReduceOp op);

// gram[i * n + j] += sum over elements of srcs[i][e] * srcs[j][e], for i <= j.
// Products are computed and summed in float64, where those of the other dtypes neither overflow nor
// vanish. The order differs among processors. Throws Error(kInvalid) unless the dtype is a floating
// point one.
void add_gram(double* gram, Dtype dtype, const void* const* srcs, int n, size_t count);

}  // namespace sirtaki
