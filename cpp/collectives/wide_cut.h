#pragma once

#include <algorithm>
#include <string>

#include "base/error.h"
#include "collectives/op.h"
#include "collectives/plan.h"
#include "transport/wide_group.h"

namespace sirtaki {

/// What of a chunk a member works on.
struct Part {
  size_t stream;  ///< of the inputs
  Range range;    ///< in that stream, and in the output
  size_t offset;  ///< in the slot or buffer of the chunk
};

/// How the data are cut; the same on all members, for bytes cross the network without tags.
class Cut {
 public:
  /// `blocks`: each member has a stream of its own, else all share one. `phases`: in which a chunk
  /// is between hosts.
  Cut(const WideGroup& group, size_t bytes, size_t chunk_bytes, bool blocks, uint32_t phases)
      : members_(group.size()), blocks_(blocks), phases_(phases) {
    const auto n = static_cast<size_t>(members_);
    // Shared memory is scarce; else so much is under way that nobody stops when a peer does for a
    // moment.
    const bool shared = group.size() > group.hosts();
    ahead_ = shared ? 2 : 8;
    const size_t total = blocks ? bytes * n : bytes;
    const size_t few = total / n / 8;
    const size_t slice = std::min(std::clamp(few, kLeastSlice, kMostSlice), chunk_bytes);
    const size_t most = group.stream_bytes() / depth() / 2;
    const size_t wanted = shared ? std::min(slice * n, most) : slice * n;
    // Room for a block of each member.
    chunk_ = std::max(wanted, n * kSliceAlign) / kSliceAlign * kSliceAlign;
    if (shared && chunk_ > most) {
      throw Error(ErrorCode::kInvalid,
                  std::to_string(n) + " ranks, several on a host, are more than can reduce large " +
                      "tensors together; use process sets of at most " +
                      std::to_string(most / kSliceAlign));
    }
    block_ = chunk_ / n / kSliceAlign * kSliceAlign;
    chunks_ = Chunks(bytes, blocks ? block_ : chunk_);
  }

  /// Chunks handed to the network before the first of them is waited for.
  uint32_t ahead() const { return ahead_; }
  /// Chunks in work at a time: one copied out and one summed on the host, those under way in each
  /// phase, and one copied in.
  uint32_t depth() const { return phases_ * ahead_ + 3; }
  size_t chunk_bytes() const { return chunk_; }
  /// No part is longer.
  size_t part_bytes() const { return chunk_ / static_cast<size_t>(members_) + 2 * kSliceAlign; }
  uint32_t count() const { return chunks_.count(); }

  Part part(uint32_t q, int member, const Streams& in) const {
    const auto m = static_cast<size_t>(member);
    if (blocks_) return {m, chunks_.range(q, in[m].bytes()), m * block_};
    const Range chunk = chunks_.range(q);
    const Range slice = slice_of(chunk.bytes(), members_, member);
    return {0, {chunk.begin + slice.begin, chunk.begin + slice.end}, slice.begin};
  }

 private:
  static constexpr size_t kLeastSlice = 32 << 10;
  static constexpr size_t kMostSlice = 128 << 10;

  int members_;
  bool blocks_;
  uint32_t phases_;
  uint32_t ahead_ = 0;
  size_t chunk_ = 0;
  size_t block_ = 0;
  Chunks chunks_{0, 1};
};

}  // namespace sirtaki
