#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/direct/direct.h"
#include "collectives/direct/meeting.h"
#include "collectives/slots/slots.h"

namespace sirtaki {
namespace {

/// So few bytes that those for all members fit into a small slot: one exchange in all.
Task alltoall_at_once(Group& group, const Op& op, const Streams& in, const Streams& out) {
  const int which = co_await group.begin_small();
  const auto own = static_cast<size_t>(group.rank());
  const auto part = [&](size_t from, size_t to) {
    return group.small_slot(static_cast<int>(from), which) + to * op.longest;
  };
  for (size_t m = 0; m < in.size(); ++m) {
    if (m != own) Cursor(in[m]).copy_to(part(own, m), {0, in[m].bytes()});
  }
  group.publish();
  co_await group.all_published(1);
  for (size_t m = 0; m < out.size(); ++m) {
    if (m != own) Cursor(out[m]).copy_from(part(m, own), {0, out[m].bytes()});
  }
  group.end();
  copy_stream(in[own], out[own]);
}

}  // namespace

Task slots_alltoall(Group& group, const Op& op, const Streams& in, const Streams& out) {
  if (op.longest <= Region::kSmallBytes / in.size()) {
    co_await alltoall_at_once(group, op, in, out);
    co_return;
  }
  const size_t chunk = StreamSlots::chunk_for(group, op, op.longest * in.size());
  const size_t block = block_bytes(chunk, group.size());
  const StreamSlots slots(group, chunk);
  const Chunks chunks(op.longest, block);
  std::vector<Cursor> sources(in.begin(), in.end());
  std::vector<Cursor> targets(out.begin(), out.end());
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
    for (size_t m = 0; m < out.size(); ++m) {
      if (m == own) continue;
      co_await group.published(static_cast<int>(m), q + 1);
      const std::byte* slot = slots.input(static_cast<int>(m), q) + own * block;
      targets[m].copy_from(slot, chunks.range(q, out[m].bytes()));
    }
    group.consume();
  }
  group.end();
  copy_stream(in[own], out[own]);
}

Task alltoall(Group& group, const Op& op, const Streams& in, const Streams& out) {
  if (is_met(group, op, op.longest * in.size())) return direct_alltoall(group, op, in, out);
  return slots_alltoall(group, op, in, out);
}

}  // namespace sirtaki
