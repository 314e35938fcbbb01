#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/direct/direct.h"
#include "collectives/direct/meeting.h"
#include "collectives/slots/slots.h"

namespace sirtaki {
namespace {

Task send_all(Group& group, const Segments& in, const Chunks& chunks, const StreamSlots& slots) {
  Cursor source(in);
  for (uint32_t q = 0; q < chunks.count(); ++q) {
    if (q >= StreamSlots::kDepth) co_await group.all_consumed(q + 1 - StreamSlots::kDepth);
    source.copy_to(slots.input(group.rank(), q), chunks.range(q));
    group.publish();
  }
  group.skip_consumed(chunks.count());
}

Task receive_all(Group& group, int root, const Segments& out, const Chunks& chunks,
                 const StreamSlots& slots) {
  Cursor target(out);
  group.skip_published(chunks.count());
  for (uint32_t q = 0; q < chunks.count(); ++q) {
    co_await group.published(root, q + 1);
    target.copy_from(slots.input(root, q), chunks.range(q));
    group.consume();
  }
}

}  // namespace

Task slots_broadcast(Group& group, const Op& op, const Segments& in, const Segments& out) {
  const size_t chunk = StreamSlots::chunk_for(group, op, op.longest);
  const StreamSlots slots(group, chunk);
  const Chunks chunks(op.longest, chunk);
  co_await group.begin_stream();
  if (group.rank() == op.root) {
    co_await send_all(group, in, chunks, slots);
  } else {
    co_await receive_all(group, op.root, out, chunks, slots);
  }
  group.end();
  if (group.rank() == op.root && out.bytes() > 0) copy_stream(in, out);
}

Task broadcast(Group& group, const Op& op, const Segments& in, const Segments& out) {
  if (is_met(group, op, op.longest)) return direct_broadcast(group, op, in, out);
  return slots_broadcast(group, op, in, out);
}

}  // namespace sirtaki
