#pragma once

#include "collectives/op.h"
#include "transport/group.h"

namespace sirtaki {

/// out = reduction of every member's `in`, in member order, bitwise equal on all members.
/// `in` and `out` have equal segment borders and may be the same memory.
Task allreduce(Group& group, const Op& op, const Segments& in, const Segments& out);

/// As allreduce, but only the root's `out` is written (the others' may be empty).
Task reduce(Group& group, const Op& op, const Segments& in, const Segments& out);

/// out[m] = member m's `in`.
Task allgather(Group& group, const Op& op, const Segments& in, const Streams& out);

/// Every member's `out` = the root's `in`.
Task broadcast(Group& group, const Op& op, const Segments& in, const Segments& out);

/// out[m] of member k = in[k] of member m. Streams may be empty.
Task alltoall(Group& group, const Op& op, const Streams& in, const Streams& out);

/// out = reduction of every member's in[own member number].
Task reducescatter(Group& group, const Op& op, const Streams& in, const Segments& out);

/// Adasum of every member's `in` for each segment on its own; see adasum.cpp.
Task adasum(Group& group, const Op& op, const Segments& in, const Segments& out);

/// Returns on every member only when all members have called it.
Task barrier(Group& group);

}  // namespace sirtaki
