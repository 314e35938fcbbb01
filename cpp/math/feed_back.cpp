#include <algorithm>

#include "math/codec.h"

namespace sirtaki {

void feed_back(const Codec& codec, float* numbers, float* residual, size_t count) {
  constexpr size_t kPiece = 8 * kCodecLine;  // encoded bytes, which stay in the innermost cache
  const size_t most = codec.numbers(kPiece);
  alignas(kCodecLine) std::byte encoded[kPiece];
  alignas(kCodecLine) float kept[kMostNumbers * kPiece];
  const void* const sources[] = {encoded};
  const ReduceFn decode = decode_fn(codec, ReduceOp::kSum);
  for (size_t at = 0; at < count; at += most) {
    const size_t piece = std::min(most, count - at);
    float* const given = numbers + at;
    float* const lost = residual + at;
    for (size_t i = 0; i < piece; ++i) given[i] += lost[i];
    codec.encode(encoded, given, piece);
    decode(kept, nullptr, sources, 1, piece, {});
    for (size_t i = 0; i < piece; ++i) {
      const float difference = given[i] - kept[i];
      lost[i] = difference - difference == 0.0f ? difference : 0.0f;  // if it is finite
    }
  }
}

}  // namespace sirtaki
