#include "collectives/algorithm.h"
#include "collectives/cursor.h"
#include "collectives/range_reduce.h"
#include "collectives/slots/stream_slots.h"

namespace sirtaki {
namespace {

void copy_to_slot(Group& group, const Op& op, const Segments& in, int which) {
  const Form form(op);
  Cursor(in, form).copy_to(group.small_slot(group.rank(), which), {0, form.bytes(in)});
}

void reduce_slots(const Group& group, const Op& op, const Segments& out, int which) {
  const Form form(op);
  const auto slot = [&](int member, size_t at) { return group.small_slot(member, which) + at; };
  Cursor target(out, form);
  RangeReduce(op, op.scale, group.size(), true).run({0, form.bytes(out)}, target, slot);
}

/// Small messages: every member reads all inputs and reduces them alone, in a single exchange.
Task reduce_at_once(Group& group, const Op& op, const Segments& in, const Segments* out) {
  const int which = co_await group.begin_small();
  copy_to_slot(group, op, in, which);
  group.publish();
  if (out != nullptr) {
    co_await group.all_published(1);
    reduce_slots(group, op, *out, which);
  }
  group.end();
}

/// Large messages, chunk by chunk: copy out the parts that others reduce, reduce this member's
/// slice of the chunk over all members, copy in the others' results. The three steps work on three
/// successive chunks, so a member rarely waits. Only `in` and `out` leave the cache.
///
/// If mirrored, both members read the other's whole chunk and reduce it alone. That reads as many
/// bytes from the other core as if each reduced a half, but saves a step and a wait.
class ChunkedReduce {
 public:
  /// `out` null: only other members need the result.
  ChunkedReduce(Group& group, const Op& op, const Segments& in, const Segments* out, bool mirrored)
      : group_(group),
        form_(op),
        reduce_(op, op.scale, group.size(), true),
        chunk_(StreamSlots::chunk_for(group, op, in.bytes())),
        chunks_(form_.bytes(in), form_.chunk(chunk_)),
        slots_(group, chunk_),
        copied_(in, form_),
        reduced_(in, form_),
        result_of_own_(out != nullptr ? *out : in, form_),
        result_(out != nullptr ? *out : in, form_),
        writes_(out != nullptr),
        mirrored_(mirrored) {}

  FramePool& frame_pool() const { return group_.frame_pool(); }

  Task run() {
    co_await group_.begin_stream();
    const uint32_t count = chunks_.count();
    const uint32_t last = mirrored_ ? 1 : 2;
    for (uint32_t step = 0; step < count + last; ++step) {
      if (step < count) copy_out(step);
      if (step >= 1 && step - 1 < count) {
        co_await group_.all_published(step);
        reduce_slice(step - 1);
      }
      for (int m = 0; m < group_.size() && step >= 2 && writes_ && !mirrored_; ++m) {
        if (m == group_.rank()) continue;
        co_await group_.consumed(m, step - 1);
        take(step - 2, m);
      }
    }
    group_.end();
  }

 private:
  // Chunk q overwrites chunk q - 4. The others have read that: they published chunk q - 2 after
  // doing so, and this member has seen chunk q - 2 by now.
  static_assert(StreamSlots::kDepth >= 4);

  Range slice(uint32_t q, int member) const {
    return slice_of(chunks_.range(q), group_.size(), member);
  }

  void copy_out(uint32_t q) {
    std::byte* slot = slots_.input(group_.rank(), q);
    const Range chunk = chunks_.range(q);
    if (mirrored_ || form_.encodes()) {
      copied_.copy_to(slot, chunk);
    } else {
      const Range own = slice(q, group_.rank());
      copied_.copy_to(slot, {chunk.begin, own.begin});
      copied_.copy_to(slot + (own.end - chunk.begin), {own.end, chunk.end});
    }
    group_.publish();
  }

  /// Results are not encoded.
  void take(uint32_t q, int member) {
    const Range range = slice(q, member);
    const std::byte* const from = slots_.result(member, q);
    result_.walk(range, [&](std::byte* to, size_t bytes, size_t at) {
      std::memcpy(to, from + form_.plain(at - range.begin), bytes);
    });
  }

  void reduce_slice(uint32_t q) {
    const size_t start = chunks_.range(q).begin;
    const auto source = [&](int m, size_t at) { return slots_.input(m, q) + (at - start); };
    if (mirrored_) {
      reduce_.run(chunks_.range(q), reduced_, group_.rank(), result_, source);
      return;
    }
    const Range own = slice(q, group_.rank());
    std::byte* result = slots_.result(group_.rank(), q);
    if (writes_) {
      reduce_.run(own, reduced_, group_.rank(), result_of_own_, source, result);
    } else {
      const Place shared(result, own.begin);
      reduce_.run(own, reduced_, group_.rank(), shared, source);
    }
    group_.consume();
  }

  Group& group_;
  Form form_;
  RangeReduce reduce_;
  size_t chunk_;  ///< of unencoded numbers
  Chunks chunks_;
  StreamSlots slots_;
  Cursor copied_, reduced_, result_of_own_, result_;
  bool writes_, mirrored_;
};

Task reduce_in_chunks(Group& group, const Op& op, const Segments& in, const Segments* out,
                      bool mirrored) {
  ChunkedReduce reduce(group, op, in, out, mirrored);
  co_await reduce.run();
}

}  // namespace

Task slots_reduce(Group& group, const Op& op, const Streams& in, const Streams& out,
                  Algorithm algorithm) {
  const bool writes = !traits_of(op.kind).rooted || group.rank() == op.root;
  const Segments* const target = writes ? &out[0] : nullptr;
  if (algorithm == Algorithm::kAtOnce) return reduce_at_once(group, op, in[0], target);
  return reduce_in_chunks(group, op, in[0], target, algorithm == Algorithm::kMirrored);
}

Task slots_reducescatter(Group& group, const Op& op, const Streams& in, const Streams& out,
                         Algorithm) {
  const size_t chunk = StreamSlots::chunk_for(group, op, op.longest * in.size());
  const size_t block = block_bytes(chunk, group.size());
  const StreamSlots slots(group, chunk);
  const Chunks chunks(op.longest, block);
  RangeReduce reduce(op, op.scale, group.size());
  std::vector<Cursor> sources(in.begin(), in.end());
  Cursor target(out[0]);
  const auto own = static_cast<size_t>(group.rank());

  co_await group.begin_stream();
  for (uint32_t q = 0; q < chunks.count(); ++q) {
    if (q >= StreamSlots::kDepth) co_await group.all_consumed(q + 1 - StreamSlots::kDepth);
    for (size_t m = 0; m < in.size(); ++m) {
      if (m == own) continue;
      std::byte* slot = slots.input(group.rank(), q) + m * block;
      sources[m].copy_to(slot, chunks.range(q, in[m].bytes()));
    }
    group.publish();
    co_await group.all_published(q + 1);
    const Range range = chunks.range(q, in[own].bytes());
    reduce.run(range, sources[own], group.rank(), target, [&](int m, size_t at) {
      return slots.input(m, q) + own * block + (at - range.begin);
    });
    group.consume();
  }
  group.end();
}

Task slots_barrier(Group& group, const Op&, const Streams&, const Streams&, Algorithm) {
  co_await group.begin_small();
  group.publish();
  co_await group.all_published(1);
  group.end();
}

}  // namespace sirtaki
