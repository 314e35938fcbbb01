#pragma once

#include <cstddef>
#include <cstdint>

#include "math/dtype.h"
#include "math/reduce.h"

namespace sirtaki {

/// In what float32 numbers travel to the other members of a sum; kNone: as they are. Each but that
/// has a row of SIRTAKI_CODECS in reduce_kernels.h.
enum class CodecId : uint8_t { kNone = 0, kF16, kBF16, kInt8 };

inline constexpr int kCodecCount = 4;

constexpr const char* name(CodecId id) {
  constexpr const char* kNames[kCodecCount] = {"none", "float16", "bfloat16", "int8"};
  return kNames[static_cast<size_t>(id)];
}

/// Wherever encoded bytes are cut at multiples of this, no block is.
inline constexpr size_t kCodecLine = 64;

/// Sums, minima, maxima and products.
inline constexpr int kCodecFolds = 4;

/// How float32 numbers are encoded, in blocks: each tensor begins with a new one.
///
/// Functions are those for the processor at hand, with the same bits on all.
struct Codec {
  size_t block;        ///< so many numbers
  size_t block_bytes;  ///< become so many bytes; a line has whole blocks
  Dtype dtype;         ///< the one whose numbers encoded ones are; kF32: there is none
  /// As reduce_fn of float32, but the result is encoded.
  ReduceFn encoder;
  /// As reduce_fn of float32, but the sources are encoded, and overlap neither dst nor copy. Null
  /// where there is no such reduction.
  ReduceFn decode[kCodecFolds];
  /// As reduce_fn, of whole blocks whose sources and results are encoded.
  ReduceFn recode[kCodecFolds];

  /// Makes numbers, from the first of a block on, encoded bytes. What lacks to the last block is
  /// zeros.
  void encode(void* to, const void* from, size_t count) const {
    encoder(to, nullptr, &from, 1, count, {});
  }
  /// What so many numbers are encoded in.
  size_t bytes(size_t count) const { return (count + block - 1) / block * block_bytes; }
  /// What so many encoded bytes, of whole blocks, have room for.
  size_t numbers(size_t bytes) const { return bytes / block_bytes * block; }
};

/// Null for kNone.
const Codec* find_codec(CodecId id);

/// Whether numbers that travel so can be reduced so.
bool has_reduction(CodecId id, ReduceOp op);

/// Of Codec::decode and Codec::recode; throw Error(kInvalid) for what has_reduction excludes.
ReduceFn decode_fn(const Codec& codec, ReduceOp op);
ReduceFn recode_fn(const Codec& codec, ReduceOp op);

/// Adds to numbers what was lost of the ones before them, and keeps what will be lost of the sum:
/// `residual` becomes what of `numbers` their encoded form does not have. Where that is not finite,
/// nothing is kept.
void feed_back(const Codec& codec, float* numbers, float* residual, size_t count);

}  // namespace sirtaki
