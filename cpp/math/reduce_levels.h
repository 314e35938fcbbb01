#pragma once

#include "math/codec.h"
#include "math/fixed_point.h"

// The reduction kernels at each instruction set, for the code that chooses one and for tests.
namespace sirtaki {

// Columns of reductions: sums, then minima and the rest in the order of ReduceOp.
inline constexpr int kFoldCount = 7;

/// The products of srcs[0] and srcs[1] with srcs[2] and srcs[3]: sums over elements of
/// srcs[i / 2][e] * srcs[2 + i % 2][e] for i = 0 .. 3, in float64. The order depends on the level.
using TileFn = void (*)(double* products, const void* const* srcs, size_t count);

/// `same`: the last two sources are the first two, and products[2] is not computed.
struct TileKernels {
  TileFn any;
  TileFn same;
};

struct FixedKernels {
  ToFixedFn to[3];  ///< by mode
  FromFixedFn from;
};

struct Kernels {
  ReduceFn reduce[kReducibleCount][kFoldCount];  ///< null if a dtype has no such operation
  TileKernels products[2];                       ///< of float32 and float64
  const Codec* codecs;                           ///< the first has number 1
  size_t codec_count;
  FixedKernels fixed[3];  ///< of float32, bfloat16 and float16
};

// Plain constants, so that nothing compiled for a newer processor runs before main.
extern const Kernels kKernelsBaseline;
#if defined(__x86_64__)
extern const Kernels kKernelsV3;
extern const Kernels kKernelsV4;
#endif

enum class Level { kBaseline = 0, kV3 = 1, kV4 = 2 };

// Null: this processor, its operating system or this build cannot run that level.
const Kernels* find_kernels(Level level);

// The kernels of the highest level that the processor can run.
const Kernels& best_kernels();

// Like the overloads without kernels, which use the best ones.
ReduceFn reduce_fn(const Kernels& kernels, Dtype dtype, ReduceOp op);
const Codec* find_codec(const Kernels& kernels, CodecId id);
void add_gram(const Kernels& kernels, double* gram, Dtype dtype, const void* const* srcs, int n,
              size_t count);

}  // namespace sirtaki
