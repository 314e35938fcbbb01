#pragma once

#include "base/task.h"
#include "collectives/op.h"

namespace sirtaki {

// One side of an alltoall: everything that does not start or end at the root is empty.

/// out[m] on the root = member m's `in`; nothing elsewhere. `AnyGroup`: on one host, or on several.
template <class AnyGroup>
Task gather(AnyGroup& group, const Op& op, const Segments& in, const Streams& out) {
  const auto members = static_cast<size_t>(group.size());
  Streams sent(members);
  sent[static_cast<size_t>(op.root)] = in;
  const Streams nothing(members);
  co_await alltoall(group, op, sent, group.rank() == op.root ? out : nothing);
}

/// Every member's `out` = the root's in[own member number].
template <class AnyGroup>
Task scatter(AnyGroup& group, const Op& op, const Streams& in, const Segments& out) {
  const auto members = static_cast<size_t>(group.size());
  Streams received(members);
  received[static_cast<size_t>(op.root)] = out;
  const Streams nothing(members);
  co_await alltoall(group, op, group.rank() == op.root ? in : nothing, received);
}

}  // namespace sirtaki
