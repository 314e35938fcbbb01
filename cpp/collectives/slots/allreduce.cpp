#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/direct/direct.h"
#include "collectives/direct/meeting.h"
#include "collectives/place.h"
#include "collectives/range_reduce.h"
#include "collectives/slots/slot_form.h"
#include "collectives/slots/slots.h"

namespace sirtaki {
namespace {

void reduce_small(Group& group, const Op& op, const Segments& out, int which) {
  const SlotForm form(op);
  const auto slot = [&](int member, size_t at) {
    return group.small_slot(member, which) + form.at(at);
  };
  const Place own(group.small_slot(group.rank(), which), 0);
  Cursor target(out);
  RangeReduce(op, op.scale, group.size()).run({0, out.bytes()}, own, group.rank(), target, slot);
}

/// Small messages: everybody reads everything and reduces it alone, one exchange in all.
Task exchange_small(Group& group, const Op& op, const Segments& in, const Segments* out) {
  const int which = co_await group.begin_small();
  Cursor from(in);
  SlotForm(op).copy_to(group.small_slot(group.rank(), which), from, {0, in.bytes()});
  group.publish();
  if (out != nullptr) {
    co_await group.all_published(1);
    reduce_small(group, op, *out, which);
  }
  group.end();
}

/// Large messages of two members, chunk by chunk: both read all of the other's and reduce it alone.
/// That is as many bytes from the other core as if each reduced a half, but one step and one wait
/// less.
class MirroredReduce {
 public:
  MirroredReduce(Group& group, const Op& op, const Segments& in, const Segments& out)
      : group_(group),
        form_(op),
        reduce_(op, op.scale, group.size()),
        chunk_(StreamSlots::chunk_for(group, op, in.bytes())),
        chunks_(in.bytes(), chunk_),
        slots_(group, chunk_),
        copied_(in),
        reduced_(in),
        result_(out) {}

  Task run() {
    const int peer = 1 - group_.rank();
    co_await group_.begin_stream();
    for (uint32_t step = 0; step < chunks_.count() + 1; ++step) {
      if (step < chunks_.count()) copy_out(step);
      if (step == 0) continue;
      co_await group_.published(peer, step);
      reduce_chunk(step - 1);
    }
    group_.end();
  }

 private:
  // Chunk q overwrites chunk q - 4. The peer has read that: it published chunk q - 2 after doing
  // so, and this member has seen chunk q - 2 by now.
  static_assert(StreamSlots::kDepth >= 4);

  void copy_out(uint32_t q) {
    form_.copy_to(slots_.input(group_.rank(), q), copied_, chunks_.range(q));
    group_.publish();
  }

  void reduce_chunk(uint32_t q) {
    const Range range = chunks_.range(q);
    const auto source = [&](int m, size_t at) {
      return slots_.input(m, q) + form_.at(at - range.begin);
    };
    reduce_.run(range, reduced_, group_.rank(), result_, source);
  }

  Group& group_;
  SlotForm form_;
  RangeReduce reduce_;
  size_t chunk_;
  Chunks chunks_;
  StreamSlots slots_;
  Cursor copied_, reduced_, result_;
};

/// Large messages, chunk by chunk: copy out what the others reduce, reduce the own slice of the
/// chunk over all members, copy in what the others reduced. The three steps work on three
/// successive chunks, so a member rarely waits. Only `in` and `out` leave the cache.
class StreamedReduce {
 public:
  StreamedReduce(Group& group, const Op& op, const Segments& in, const Segments* out)
      : group_(group),
        form_(op),
        reduce_(op, op.scale, group.size()),
        chunk_(StreamSlots::chunk_for(group, op, in.bytes())),
        chunks_(in.bytes(), chunk_),
        slots_(group, chunk_),
        copied_(in),
        reduced_(in),
        result_of_own_(out != nullptr ? *out : in),
        result_(out != nullptr ? *out : in),
        writes_(out != nullptr) {}

  Task run() {
    co_await group_.begin_stream();
    const uint32_t count = chunks_.count();
    for (uint32_t step = 0; step < count + 2; ++step) {
      if (step < count) copy_out(step);
      if (step >= 1 && step - 1 < count) {
        co_await group_.all_published(step);
        reduce_slice(step - 1);
      }
      for (int m = 0; m < group_.size() && step >= 2 && writes_; ++m) {
        if (m == group_.rank()) continue;
        co_await group_.consumed(m, step - 1);
        result_.copy_from(slots_.result(m, step - 2), slice(step - 2, m));
      }
    }
    group_.end();
  }

 private:
  Range slice(uint32_t q, int member) const {
    const Range chunk = chunks_.range(q);
    const Range part = slice_of(chunk.bytes(), group_.size(), member);
    return {chunk.begin + part.begin, chunk.begin + part.end};
  }

  void copy_out(uint32_t q) {
    std::byte* slot = slots_.input(group_.rank(), q);
    const size_t start = chunks_.range(q).begin;
    const Range own = form_.rounds() ? Range{start, start} : slice(q, group_.rank());
    const Range before{start, own.begin};
    const Range after{own.end, chunks_.range(q).end};
    form_.copy_to(slot, copied_, before);
    form_.copy_to(slot + form_.at(after.begin - start), copied_, after);
    group_.publish();
  }

  void reduce_slice(uint32_t q) {
    const Range own = slice(q, group_.rank());
    const size_t start = chunks_.range(q).begin;
    std::byte* result = slots_.result(group_.rank(), q);
    const auto source = [&](int m, size_t at) { return slots_.input(m, q) + form_.at(at - start); };
    if (writes_) {
      reduce_.run(own, reduced_, group_.rank(), result_of_own_, source, result);
    } else {
      const Place shared(result, own.begin);
      reduce_.run(own, reduced_, group_.rank(), shared, source);
    }
    group_.consume();
  }

  Group& group_;
  SlotForm form_;
  RangeReduce reduce_;
  size_t chunk_;
  Chunks chunks_;
  StreamSlots slots_;
  Cursor copied_, reduced_, result_of_own_, result_;
  bool writes_;
};

bool is_small(const Group& group, const Segments& in) {
  // With many members, reading everything costs more than a second exchange.
  return in.bytes() <= Region::kSmallBytes * 4 / static_cast<size_t>(std::max(4, group.size()));
}

Task mirror(Group& group, const Op& op, const Segments& in, const Segments& out) {
  MirroredReduce reduce(group, op, in, out);
  co_await reduce.run();
}

Task stream(Group& group, const Op& op, const Segments& in, const Segments* out) {
  StreamedReduce reduce(group, op, in, out);
  co_await reduce.run();
}

}  // namespace

Task slots_reduce(Group& group, const Op& op, const Segments& in, const Segments* out) {
  if (is_small(group, in)) return exchange_small(group, op, in, out);
  if (op.kind == Kind::kAllreduce && group.size() == 2) return mirror(group, op, in, *out);
  return stream(group, op, in, out);
}

Task allreduce(Group& group, const Op& op, const Segments& in, const Segments& out) {
  if (is_met(group, op, in.bytes())) return direct_reduce(group, op, in, &out);
  return slots_reduce(group, op, in, &out);
}

Task reduce(Group& group, const Op& op, const Segments& in, const Segments& out) {
  const Segments* target = group.rank() == op.root ? &out : nullptr;
  if (is_met(group, op, in.bytes())) return direct_reduce(group, op, in, target);
  return slots_reduce(group, op, in, target);
}

}  // namespace sirtaki
