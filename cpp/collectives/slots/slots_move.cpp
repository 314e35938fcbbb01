#include "collectives/slots/slot_move.h"

namespace sirtaki {

Task slots_allgather(Group& group, const Op& op, const Streams& in, const Streams& out,
                     Algorithm algorithm) {
  SlotMove move(group, op, 1, algorithm);
  move.gives(in[0], 0);
  for (int m = 0; m < group.size(); ++m) {
    if (m != group.rank()) move.takes(out[static_cast<size_t>(m)], m, 0);
  }
  co_await move.run();
  copy_stream(in[0], out[static_cast<size_t>(group.rank())]);
}

Task slots_alltoall(Group& group, const Op& op, const Streams& in, const Streams& out,
                    Algorithm algorithm) {
  SlotMove move(group, op, group.size(), algorithm);
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
  SlotMove move(group, op, 1, algorithm);
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
