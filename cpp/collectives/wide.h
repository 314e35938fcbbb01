#pragma once

#include "collectives/op.h"
#include "transport/wide_group.h"

namespace sirtaki {

// The collectives of process sets that span hosts; contracts as in collectives.h.
//
// Sums of one host's members travel in the operation's dtype: 16-bit floats are accumulated in
// float32 within a host and again among the hosts, and rounded once in between.

Task allreduce(WideGroup& group, const Op& op, const Segments& in, const Segments& out);
Task reduce(WideGroup& group, const Op& op, const Segments& in, const Segments& out);
Task reducescatter(WideGroup& group, const Op& op, const Streams& in, const Segments& out);
Task allgather(WideGroup& group, const Op& op, const Segments& in, const Streams& out);
Task broadcast(WideGroup& group, const Op& op, const Segments& in, const Segments& out);
Task alltoall(WideGroup& group, const Op& op, const Streams& in, const Streams& out);
Task gather(WideGroup& group, const Op& op, const Segments& in, const Streams& out);
Task scatter(WideGroup& group, const Op& op, const Streams& in, const Segments& out);
Task adasum(WideGroup& group, const Op& op, const Segments& in, const Segments& out);
Task barrier(WideGroup& group);

/// What both ends of a connection say about an operation before its bytes follow.
Greeting greeting_of(const Op& op, size_t bytes);

/// The factors for the sum of a host's members, and for the sum of the hosts.
struct HostScales {
  Scale on_host;
  Scale among_hosts;
};
HostScales scales_of(const Op& op);

/// Few enough bytes to go from every host to every other one at once, in a single step. The same
/// on all members.
bool goes_at_once(const WideGroup& group, size_t bytes);

/// allreduce of few bytes (`out` null: the result is wanted elsewhere only); of none: a barrier.
Task reduce_at_once(WideGroup& group, const Op& op, const Segments& in, const Segments* out);

}  // namespace sirtaki
