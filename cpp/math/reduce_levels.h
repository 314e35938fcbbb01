#pragma once

#include "math/wire_format.h"

// The reduction kernels at each instruction set; for reduce.cpp and the tests.
namespace sirtaki {

enum class Level { kBaseline = 0, kV3 = 1, kV4 = 2 };

inline constexpr int kLevelCount = 3;

// In the order of the columns of Kernels::reduce.
enum class Fold { kSum = 0, kMin, kMax, kProduct, kBitAnd, kBitOr, kBitXor };

inline constexpr int kFoldCount = 7;
inline constexpr int kBitwiseFold = 4;  ///< from here on of integers and bools only

inline constexpr int kFloatCount = 4;

/// Makes numbers float64, with zeros behind them up to a multiple of kWidenedUnit. Not in their
/// order, but in one that depends on nothing but their count.
using WidenFn = void (*)(double* to, const void* from, size_t count);

inline constexpr size_t kWidenedUnit = 64;

/// Sum of a[e] * b[e] over elements of float64. The order depends on the level.
using DotFn = double (*)(const void* a, const void* b, size_t count);

struct Kernels {
  ReduceFn reduce[kVectorCount][kFoldCount];  ///< null where a dtype has no such operation
  WidenFn widen[kFloatCount];                 ///< from Dtype::kF16 on; null for float64
  DotFn dot;
};

/// How the elements of a dtype are multiplied; `widen` is null where they are float64.
struct DotKernels {
  WidenFn widen;
  DotFn dot;
};

struct WireKernels {
  RoundFn round;
  ReduceFn widening[kBitwiseFold];
  ReduceFn rounding[kBitwiseFold];
};

// Of the dtypes from kVectorCount on, for all levels.
extern const ReduceFn kDerivedKernels[kReducibleCount - kVectorCount][kFoldCount];

// Plain constants, so that nothing compiled for a newer processor runs before main.
extern const Kernels kKernelsBaseline;
extern const WireKernels kWiresBaseline[kWireCount - 1];
#if defined(__x86_64__)
extern const Kernels kKernelsV3;
extern const Kernels kKernelsV4;
extern const WireKernels kWiresV3[kWireCount - 1];
extern const WireKernels kWiresV4[kWireCount - 1];
#endif

// Whether this processor, its operating system and this build can run `level`.
bool level_available(Level level);

// The level reduce_fn takes.
Level best_level();

// As reduce_fn, but of one level; throws Error(kInvalid) also where it is not available.
ReduceFn reduce_fn_for_level(Level level, Dtype dtype, ReduceOp op);

// As those of math/wire_format.h, but of one level; throw Error(kInvalid) also where it is not
// available.
RoundFn round_fn_for_level(Level level, WireFormat wire);
ReduceFn widening_reduce_fn_for_level(Level level, WireFormat wire, ReduceOp op);
ReduceFn rounding_reduce_fn_for_level(Level level, WireFormat wire, ReduceOp op);

// Throws Error(kInvalid) unless the dtype is a floating point one.
DotKernels dot_kernels(Level level, Dtype dtype);

// As add_gram, but of one level; throws Error(kInvalid) also where it is not available.
void add_gram_for_level(Level level, double* gram, Dtype dtype, const void* const* srcs, int n,
                        size_t count);

}  // namespace sirtaki
