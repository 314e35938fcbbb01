#pragma once

#include <algorithm>
#include <cstdint>

namespace sirtaki {

/// Adapts the chunk, the piece of a stream in flight at a time, to whether cores are free.
///
/// Small chunks stay in the cache, but members wait for each other at every chunk. If other threads
/// compute on all cores, each such wait ends in sleep and costs the core: then chunks as large as
/// the slots allow are faster. A plain state machine, fed by the sequencer.
class ChunkPolicy {
 public:
  /// Chunks have `usual` bytes, or `largest`.
  ChunkPolicy(int64_t usual, int64_t largest)
      : usual_(usual), largest_(largest), chunk_bytes_(usual) {}

  /// A batch of `bytes` is done, in which a member slept `sleeps` times for another, on average.
  /// Returns true if the chunk changed.
  bool record(int64_t bytes, int64_t sleeps) {
    if (bytes < kFewestChunks * usual_) return false;  // one late member would decide
    const int64_t before = chunk_bytes_;
    const int64_t most = kSleepsAnyway + bytes / chunk_bytes_ / kChunksASleep;
    calm_ = sleeps > most ? 0 : std::min(calm_ + 1, kCalmBatches);
    if (calm_ == 0) chunk_bytes_ = largest_;
    if (calm_ == kCalmBatches) chunk_bytes_ = usual_;
    return chunk_bytes_ != before;
  }

  int64_t chunk_bytes() const { return chunk_bytes_; }

 private:
  static constexpr int64_t kFewestChunks = 8;
  static constexpr int64_t kSleepsAnyway = 1;  ///< before the last member begins
  static constexpr int64_t kChunksASleep = 16;
  /// A training step has calm batches too, after its computation.
  static constexpr int kCalmBatches = 32;

  const int64_t usual_;
  const int64_t largest_;
  int64_t chunk_bytes_;
  int calm_ = 0;  ///< batches since one in which members slept
};

}  // namespace sirtaki
