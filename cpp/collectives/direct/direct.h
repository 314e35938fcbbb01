#pragma once

#include "collectives/op.h"
#include "transport/group.h"

namespace sirtaki {

// Collectives of members who have shared heaps: what lies there is summed or copied from where it
// is to where it belongs. The parts of the streams that lie elsewhere go through the slots, with
// the same results to the bit.

/// Of allreduce and reduce: those whose result is written show `out`.
Task direct_reduce(Group& group, const Op& op, const Segments& in, const Segments* out);
Task direct_reducescatter(Group& group, const Op& op, const Streams& in, const Segments& out);
Task direct_allgather(Group& group, const Op& op, const Segments& in, const Streams& out);
Task direct_broadcast(Group& group, const Op& op, const Segments& in, const Segments& out);
Task direct_alltoall(Group& group, const Op& op, const Streams& in, const Streams& out);

// The same through slots alone.

Task slots_reduce(Group& group, const Op& op, const Segments& in, const Segments* out);
Task slots_reducescatter(Group& group, const Op& op, const Streams& in, const Segments& out);
Task slots_allgather(Group& group, const Op& op, const Segments& in, const Streams& out);
Task slots_broadcast(Group& group, const Op& op, const Segments& in, const Segments& out);
Task slots_alltoall(Group& group, const Op& op, const Streams& in, const Streams& out);

}  // namespace sirtaki
