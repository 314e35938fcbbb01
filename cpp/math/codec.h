#pragma once

#include <cstddef>
#include <cstdint>

#include "math/dtype.h"
#include "math/reduce.h"

namespace sirtaki {

/// The format in which float32 numbers travel to the other members of a sum; kNone: unchanged.
/// Every other one is a row of kCodecs in reduce_kernels.h. Here are those that C++ names.
enum class CodecId : uint8_t { kNone = 0, kF16, kBF16, kInt8, kInt4 };

/// Encoded bytes that are cut at multiples of this are never cut within a block.
inline constexpr size_t kCodecLine = 64;

/// An encoded byte has at most so many numbers.
inline constexpr size_t kMostNumbers = 2;

/// Sums, minima, maxima and products.
inline constexpr int kCodecFolds = 4;

/// Encodes float32 numbers in blocks: each tensor begins with a new block.
///
/// The functions are those for this processor and give the same bits on all processors.
struct Codec {
  const char* name;
  const char* format;  ///< for users: what is sent
  size_t block;        ///< numbers of a block
  size_t block_bytes;  ///< bytes that a block is encoded in; a line has whole blocks
  Dtype dtype;         ///< the dtype of encoded numbers; kF32: there is no such dtype
  /// Like reduce_fn of float32, but encodes the result.
  ReduceFn encoder;
  /// Like reduce_fn of float32, but decodes the sources, which overlap neither dst nor copy. Null
  /// where there is no such reduction.
  ReduceFn decode[kCodecFolds];
  /// Like reduce_fn, of whole blocks whose sources and results are encoded.
  ReduceFn recode[kCodecFolds];

  /// Encodes numbers from the start of a block on. Zeros fill the rest of the last block.
  void encode(void* to, const void* from, size_t count) const {
    encoder(to, nullptr, &from, 1, count, {});
  }
  /// The number of bytes that `count` numbers are encoded in.
  size_t bytes(size_t count) const { return (count + block - 1) / block * block_bytes; }
  /// The number of numbers that `bytes` encoded bytes, of whole blocks, have room for.
  size_t numbers(size_t bytes) const { return bytes / block_bytes * block; }
};

/// Null for kNone, and for numbers that no codec has.
const Codec* find_codec(CodecId id);

/// kNone is one of them.
int codec_count();

inline const char* name(CodecId id) {
  const Codec* const codec = find_codec(id);
  return codec == nullptr ? "none" : codec->name;
}

/// Whether numbers in this format can be reduced with this operation.
bool has_reduction(CodecId id, ReduceOp op);

/// Return Codec::decode and Codec::recode; throw Error(kInvalid) for what has_reduction excludes.
ReduceFn decode_fn(const Codec& codec, ReduceOp op);
ReduceFn recode_fn(const Codec& codec, ReduceOp op);

/// Error feedback: adds the rounding errors of the previous numbers to `numbers`, and stores in
/// `residual` what the encoded form of the sum loses. Errors that are not finite are not kept.
void feed_back(const Codec& codec, float* numbers, float* residual, size_t count);

}  // namespace sirtaki
