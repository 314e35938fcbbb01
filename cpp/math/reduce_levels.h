#pragma once

#include "math/codec.h"

// The reduction kernels at each instruction set; for reduce.cpp and the tests.
namespace sirtaki {

enum class Level { kBaseline = 0, kV3 = 1, kV4 = 2 };

inline constexpr int kLevelCount = 3;

// In the order of the columns of Kernels::reduce.
enum class Fold { kSum = 0, kMin, kMax, kProduct, kBitAnd, kBitOr, kBitXor };

inline constexpr int kFoldCount = 7;
inline constexpr int kBitwiseFold = 4;  ///< from here on of integers and bools only

/// The products of srcs[0] and srcs[1] with srcs[2] and srcs[3]: sums over elements of
/// srcs[i / 2][e] * srcs[2 + i % 2][e] for i = 0 .. 3, in float64. The order depends on the level.
using TileFn = void (*)(double* products, const void* const* srcs, size_t count);

/// `same`: the last two sources are the first two, and products[2] is not computed.
struct TileKernels {
  TileFn any;
  TileFn same;
};

struct Kernels {
  ReduceFn reduce[kVectorCount][kFoldCount];  ///< null where a dtype has no such operation
  TileKernels products[2];                    ///< of float32 and float64
};

static_assert(kCodecFolds == kBitwiseFold);

// Of the dtypes from kVectorCount on, for all levels.
extern const ReduceFn kDerivedKernels[kReducibleCount - kVectorCount][kFoldCount];

// Plain constants, so that nothing compiled for a newer processor runs before main.
extern const Kernels kKernelsBaseline;
extern const Codec kCodecsBaseline[kCodecCount - 1];
#if defined(__x86_64__)
extern const Kernels kKernelsV3;
extern const Kernels kKernelsV4;
extern const Codec kCodecsV3[kCodecCount - 1];
extern const Codec kCodecsV4[kCodecCount - 1];
#endif

// Whether this processor, its operating system and this build can run `level`.
bool level_available(Level level);

// The level reduce_fn takes.
Level best_level();

// As reduce_fn, but of one level; throws Error(kInvalid) also where it is not available.
ReduceFn reduce_fn_for_level(Level level, Dtype dtype, ReduceOp op);

// As find_codec, but of one level; throws Error(kInvalid) also where it is not available.
const Codec* find_codec_for_level(Level level, CodecId id);

// Of float32 or float64.
TileKernels tile_kernels(Level level, Dtype dtype);

// As add_gram, but of one level; throws Error(kInvalid) also where it is not available.
void add_gram_for_level(Level level, double* gram, Dtype dtype, const void* const* srcs, int n,
                        size_t count);

}  // namespace sirtaki
