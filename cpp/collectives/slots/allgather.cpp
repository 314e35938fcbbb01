#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/direct/direct.h"
#include "collectives/direct/meeting.h"
#include "collectives/slots/slots.h"

namespace sirtaki {

Task slots_allgather(Group& group, const Op& op, const Segments& in, const Streams& out) {
  const size_t chunk = StreamSlots::chunk_for(group, op, op.longest);
  const StreamSlots slots(group, chunk);
  const Chunks chunks(op.longest, chunk);
  Cursor source(in);
  std::vector<Cursor> targets(out.begin(), out.end());

  co_await group.begin_stream();
  for (uint32_t q = 0; q < chunks.count(); ++q) {
    if (q >= StreamSlots::kDepth) co_await group.all_consumed(q + 1 - StreamSlots::kDepth);
    source.copy_to(slots.input(group.rank(), q), chunks.range(q, in.bytes()));
    group.publish();
    for (int m = 0; m < group.size(); ++m) {
      if (m == group.rank()) continue;
      co_await group.published(m, q + 1);
      const auto member = static_cast<size_t>(m);
      targets[member].copy_from(slots.input(m, q), chunks.range(q, out[member].bytes()));
    }
    group.consume();
  }
  group.end();
  copy_stream(in, out[static_cast<size_t>(group.rank())]);
}

Task allgather(Group& group, const Op& op, const Segments& in, const Streams& out) {
  if (is_met(group, op, op.longest)) return direct_allgather(group, op, in, out);
  return slots_allgather(group, op, in, out);
}

}  // namespace sirtaki
