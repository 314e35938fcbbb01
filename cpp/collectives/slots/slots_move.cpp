#include <vector>

#include "collectives/cursor.h"
#include "collectives/slots/stream_slots.h"
#include "collectives/ways.h"

namespace sirtaki {
namespace {

/// Moves streams through the givers' slots. Who gives or takes nothing waits for nobody for it.
class Move {
 public:
  /// `blocks`: streams that a giver has in its slots side by side.
  Move(Group& group, const Op& op, int blocks, Algorithm algorithm)
      : group_(group),
        at_once_(algorithm == Algorithm::kAtOnce),
        chunk_(StreamSlots::chunk_for(group, op, op.longest * static_cast<size_t>(blocks))),
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
    if (at_once_) {
      which_ = co_await group_.begin_small();
    } else {
      co_await group_.begin_stream();
    }
    const uint32_t count = chunks_.count();
    // As long as no slot is used twice nobody has to know who has read it.
    const bool reuses = count > StreamSlots::kDepth;
    if (given_.empty()) group_.skip_published(count);
    if (taken_.empty() && reuses) group_.skip_consumed(count);
    for (uint32_t q = 0; q < count; ++q) {
      if (!given_.empty()) {
        if (q >= StreamSlots::kDepth) co_await group_.all_consumed(q + 1 - StreamSlots::kDepth);
        for (Part& part : given_) part.cursor.copy_to(block(part, q), range(part, q));
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

}  // namespace

Task slots_allgather(Group& group, const Op& op, const Streams& in, const Streams& out,
                     Algorithm algorithm) {
  Move move(group, op, 1, algorithm);
  move.gives(in[0], 0);
  for (int m = 0; m < group.size(); ++m) {
    if (m != group.rank()) move.takes(out[static_cast<size_t>(m)], m, 0);
  }
  co_await move.run();
  copy_stream(in[0], out[static_cast<size_t>(group.rank())]);
}

Task slots_alltoall(Group& group, const Op& op, const Streams& in, const Streams& out,
                    Algorithm algorithm) {
  Move move(group, op, group.size(), algorithm);
  for (int m = 0; m < group.size(); ++m) {
    if (m == group.rank()) continue;
    move.gives(in[static_cast<size_t>(m)], m);
    move.takes(out[static_cast<size_t>(m)], m, group.rank());
  }
  co_await move.run();
  const auto own = static_cast<size_t>(group.rank());
  copy_stream(in[own], out[own]);
}

Task slots_broadcast(Group& group, const Op& op, const Streams& in, const Streams& out,
                     Algorithm algorithm) {
  Move move(group, op, 1, algorithm);
  const bool gives = group.rank() == op.root;
  if (gives) {
    move.gives(in[0], 0);
  } else {
    move.takes(out[0], op.root, 0);
  }
  co_await move.run();
  if (gives && out[0].bytes() > 0) copy_stream(in[0], out[0]);
}

}  // namespace sirtaki
