#pragma once

#include <algorithm>

#include "collectives/op.h"
#include "collectives/plan.h"
#include "transport/group.h"

namespace sirtaki {

/// The division of a member's streaming slots: kDepth chunks in flight, each with the member's
/// input and room for the part of the result that it computes.
class StreamSlots {
 public:
  static constexpr uint32_t kDepth = 4;

  StreamSlots(const Group& group, size_t chunk_bytes)
      : group_(group), chunk_(chunk_bytes), result_(kDepth * chunk_bytes) {}

  std::byte* input(int member, uint32_t q) const {
    return group_.stream_slots(member) + (q % kDepth) * chunk_;
  }
  /// A result takes at most half a chunk: a group has at least two members.
  std::byte* result(int member, uint32_t q) const {
    return group_.stream_slots(member) + result_ + (q % kDepth) * (chunk_ / 2);
  }

  /// The configured chunk size as far as the slots allow it, but smaller for messages that would
  /// otherwise have too few chunks to overlap copying with reducing. A chunk has room for `blocks`
  /// blocks.
  static size_t chunk_for(const Group& group, const Op& op, size_t bytes, size_t blocks) {
    const size_t wanted = std::min(std::max(bytes / kDepth, kLeastChunk), op.chunk_bytes);
    const size_t least = blocks * kSliceAlign;
    return std::min(std::max(wanted, least) + kRound - 1, most(group.stream_bytes())) / kRound *
           kRound;
  }
  /// The same, with a block for each member.
  static size_t chunk_for(const Group& group, const Op& op, size_t bytes) {
    return chunk_for(group, op, bytes, static_cast<size_t>(group.size()));
  }
  /// The longest chunk that fits into slots of this size.
  static constexpr size_t most(size_t stream_bytes) { return stream_bytes / kDepth / 3 * 2; }

 private:
  static constexpr size_t kRound = 4096;
  static constexpr size_t kLeastChunk = 16 << 10;

  const Group& group_;
  size_t chunk_;
  size_t result_;
};

/// The size of a block in a chunk that holds one for each member.
inline size_t block_bytes(size_t chunk_bytes, int members) {
  return chunk_bytes / static_cast<size_t>(members) / kSliceAlign * kSliceAlign;
}

}  // namespace sirtaki
