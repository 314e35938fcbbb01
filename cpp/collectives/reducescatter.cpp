#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/slots.h"

namespace sirtaki {

Task reducescatter(Group& group, const Op& op, const Streams& in, const Segments& out) {
  const size_t chunk = StreamSlots::chunk_for(group, op, op.longest * in.size());
  const size_t block = block_bytes(chunk, group.size());
  const StreamSlots slots(group, chunk);
  const Chunks chunks(op.longest, block);
  const ReduceFn fn = reduce_fn(op.dtype, op.reduce);
  std::vector<Cursor> sources(in.begin(), in.end());
  Cursor target(out);
  std::vector<const void*> parts(in.size());
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
    sources[own].walk(range, [&](const std::byte* mine, size_t bytes, size_t at) {
      target.walk({at, at + bytes}, [&](std::byte* to, size_t piece, size_t position) {
        for (size_t m = 0; m < in.size(); ++m) {
          const std::byte* slot = slots.input(static_cast<int>(m), q) + own * block;
          parts[m] = m == own ? mine + (position - at) : slot + (position - range.begin);
        }
        fn(to, nullptr, parts.data(), group.size(), piece / size_of(op.dtype), op.scale);
      });
    });
    group.consume();
  }
  group.end();
}

}  // namespace sirtaki
