#pragma once

#include <algorithm>
#include <coroutine>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/cursor.h"
#include "collectives/slots/stream_slots.h"

namespace sirtaki {

/// Moves streams through the givers' slots. A member without streams to give or take does not wait.
class SlotMove {
 public:
  /// `blocks`: the streams that a giver has side by side in its slots.
  SlotMove(Group& group, const Op& op, int blocks, Algorithm algorithm)
      : group_(group),
        at_once_(algorithm == Algorithm::kAtOnce),
        chunk_(StreamSlots::chunk_for(group, op, op.longest * static_cast<size_t>(blocks),
                                      static_cast<size_t>(blocks))),
        block_(at_once_ ? std::max<size_t>(op.longest, 1) : block_bytes(chunk_, blocks)),
        chunks_(op.longest, block_),
        slots_(group, chunk_) {}

  FramePool& frame_pool() const { return group_.frame_pool(); }

  void gives(const Segments& stream, int block) {
    given_.push_back({Cursor(stream), stream.bytes(), group_.rank(), block});
  }
  void takes(const Segments& stream, int giver, int block) {
    taken_.push_back({Cursor(stream), stream.bytes(), giver, block});
  }

  Task run() {
    return run([](size_t, size_t, uint32_t) { return std::suspend_never(); });
  }
  /// `arrived(i, end, q)`, awaited: given stream number i has everything before `end`, which chunk
  /// q needs.
  template <class Arrived>
  Task run(Arrived arrived) {
    if (at_once_) {
      which_ = co_await group_.begin_small();
    } else {
      co_await group_.begin_stream();
    }
    const uint32_t count = chunks_.count();
    // If no slot is used twice, it does not matter who has read it.
    const bool reuses = count > StreamSlots::kDepth;
    if (given_.empty()) group_.skip_published(count);
    if (taken_.empty() && reuses) group_.skip_consumed(count);
    for (uint32_t q = 0; q < count; ++q) {
      if (!given_.empty()) {
        if (q >= StreamSlots::kDepth) co_await group_.all_consumed(q + 1 - StreamSlots::kDepth);
        for (size_t i = 0; i < given_.size(); ++i) {
          Part& part = given_[i];
          const Range piece = range(part, q);
          co_await arrived(i, piece.end, q);
          part.cursor.copy_to(block(part, q), piece);
        }
        group_.publish();
      }
      for (Part& part : taken_) {
        co_await group_.published(part.giver, q + 1);
        part.cursor.copy_from(block(part, q), range(part, q));
      }
      if (!taken_.empty() && reuses) group_.consume();
    }
    group_.end();
  }

 private:
  struct Part {
    Cursor cursor;
    size_t bytes;
    int giver;
    int block;
  };

  Range range(const Part& part, uint32_t q) const { return chunks_.range(q, part.bytes); }
  std::byte* block(const Part& part, uint32_t q) const {
    std::byte* const slot =
        at_once_ ? group_.small_slot(part.giver, which_) : slots_.input(part.giver, q);
    return slot + static_cast<size_t>(part.block) * block_;
  }

  Group& group_;
  bool at_once_;
  size_t chunk_, block_;
  Chunks chunks_;
  StreamSlots slots_;
  int which_ = 0;
  std::vector<Part> given_, taken_;
};

}  // namespace sirtaki
