#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/direct/direct.h"
#include "collectives/direct/meeting.h"
#include "collectives/range_reduce.h"
#include "collectives/slots/slots.h"

namespace sirtaki {

Task slots_reducescatter(Group& group, const Op& op, const Streams& in, const Segments& out) {
  const size_t chunk = StreamSlots::chunk_for(group, op, op.longest * in.size());
  const size_t block = block_bytes(chunk, group.size());
  const StreamSlots slots(group, chunk);
  const Chunks chunks(op.longest, block);
  RangeReduce reduce(op, op.scale, group.size());
  std::vector<Cursor> sources(in.begin(), in.end());
  Cursor target(out);
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

Task reducescatter(Group& group, const Op& op, const Streams& in, const Segments& out) {
  if (is_met(group, op, op.longest * in.size())) return direct_reducescatter(group, op, in, out);
  return slots_reducescatter(group, op, in, out);
}

}  // namespace sirtaki
