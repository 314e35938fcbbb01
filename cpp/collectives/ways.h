#pragma once

#include <iterator>

#include "collectives/algorithm.h"
#include "transport/wide_group.h"

namespace sirtaki {

// The collectives by the ways they are carried out. `in` and `out` are as Backend says; they must
// stay where they are until the task is done. What begins or ends at the root alone may be empty
// elsewhere.
//   allreduce      out = reduction of every member's `in`, bitwise equal on all members; `in` and
//                  `out` have equal segment borders and may be the same memory; with a codec all
//                  members have these borders
//   reduce         the same for the root
//   allgather      out[m] = member m's `in`
//   broadcast      every member's `out` = the root's `in`
//   alltoall       out[m] of member k = in[k] of member m
//   gather         out[m] of the root = member m's `in`: an alltoall
//   scatter        every member's `out` = the root's in[own number]: an alltoall
//   reducescatter  out = reduction of every member's in[own number]
//   barrier        returns only when all members have called it

// Through the slots of a host, in the order of members.

using SlotsWay = Task(Group& group, const Op& op, const Streams& in, const Streams& out,
                      Algorithm algorithm);
SlotsWay slots_reduce, slots_allgather, slots_broadcast, slots_alltoall, slots_reducescatter,
    slots_barrier;

// In shared heaps: what lies there is summed or copied from where it is to where it belongs.

/// What of an operation is left to the slots: the parts of its streams that lie elsewhere. At first
/// it is the whole, which it stays when members cannot touch each other's memory.
struct Rest {
  Op op;
  Streams in;
  Streams out;
};

using HeapsWay = Task(Group& group, const Op& op, const Streams& in, const Streams& out,
                      Rest& rest);
HeapsWay heaps_reduce, heaps_allgather, heaps_broadcast, heaps_alltoall, heaps_reducescatter;

// Among hosts. Sums of one host's members travel in the operation's dtype, or encoded: 16-bit
// floats and what is encoded are accumulated in float32 within a host and rounded once, and again
// among the hosts, as the algorithm tells.

using WideWay = Task(WideGroup& group, const Op& op, const Streams& in, const Streams& out);
WideWay wide_allreduce, wide_reduce, wide_allgather, wide_broadcast, wide_alltoall,
    wide_reducescatter, wide_barrier;

/// Of every member's vectors, for each segment on its own; made of other collectives.
template <class AnyGroup>
Task adasum(AnyGroup& group, const Op& op, const Segments& in, const Segments& out);

struct Ways {
  SlotsWay* slots;
  HeapsWay* heaps;
  WideWay* among_hosts;
};

/// By kind; a new kind is a new row.
inline constexpr Ways kWays[] = {
    {slots_reduce, heaps_reduce, wide_allreduce},
    {slots_allgather, heaps_allgather, wide_allgather},
    {slots_broadcast, heaps_broadcast, wide_broadcast},
    {slots_alltoall, heaps_alltoall, wide_alltoall},
    {slots_reducescatter, heaps_reducescatter, wide_reducescatter},
    {slots_barrier, nullptr, wide_barrier},
    {slots_reduce, heaps_reduce, wide_reduce},
    {slots_alltoall, heaps_alltoall, wide_alltoall},
    {slots_alltoall, heaps_alltoall, wide_alltoall},
};
static_assert(std::size(kWays) == static_cast<size_t>(Kind::kJoin));

}  // namespace sirtaki
