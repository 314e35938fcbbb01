#include "collectives/collectives.h"

#include "base/error.h"
#include "collectives/cursor.h"
#include "collectives/kinds.h"
#include "collectives/ways.h"

namespace sirtaki {
namespace {

const Ways& ways_of(Kind kind) {
  const auto index = static_cast<size_t>(kind);
  if (index >= std::size(kWays)) throw Error(ErrorCode::kInternal, "not a data operation");
  return kWays[index];
}

Algorithm choose(const Group& group, const Op& op, const Streams& in, bool heaps) {
  return algorithm_for(
      {.kind = op.kind, .bytes = bytes_on_way(op, in), .members = group.size(), .heaps = heaps});
}

/// Whether to look where the streams lie. Encoded numbers have to lie elsewhere.
bool may_share(Group& group, const Op& op) {
  if (group.heaps() == nullptr || op.codec != CodecId::kNone) return false;
  const size_t bytes = bytes_in_slots(op.kind, op.longest, group.size());
  return group.meetings().is_due(static_cast<uint32_t>(op.kind), bytes);
}

Task alone(Group&, const Op& op, const Streams& in, const Streams& out) {
  run_alone(op, in, out);
  co_return;
}

Task in_heaps(Group& group, const Op& op, const Streams& in, const Streams& out) {
  const Ways& ways = ways_of(op.kind);
  Rest rest{op, in, out};
  co_await ways.heaps(group, op, in, out, rest);
  if (rest.op.longest == 0) co_return;
  co_await ways.slots(group, rest.op, rest.in, rest.out, choose(group, rest.op, rest.in, false));
}

Task run(Group& group, const Op& op, const Streams& in, const Streams& out) {
  const Algorithm algorithm = choose(group, op, in, may_share(group, op));
  if (algorithm == Algorithm::kAlone) return alone(group, op, in, out);
  if (algorithm == Algorithm::kHeaps) return in_heaps(group, op, in, out);
  return ways_of(op.kind).slots(group, op, in, out, algorithm);
}

Task run(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  return ways_of(op.kind).among_hosts(group, op, in, out);
}

/// Gather and scatter: an alltoall in which all that does not begin or end at the root is empty.
template <class AnyGroup>
Task rooted(AnyGroup& group, const Op& op, const Streams& in, const Streams& out) {
  const auto root = static_cast<size_t>(op.root);
  const bool is_root = group.rank() == op.root;
  Streams sent(static_cast<size_t>(group.size()));
  Streams received(sent.size());
  if (traits_of(op.kind).takes_each()) {
    sent[root] = in[0];
    if (is_root) received = out;
  } else {
    received[root] = out[0];
    if (is_root) sent = in;
  }
  co_await run(group, op, sent, received);
}

}  // namespace

template <class AnyGroup>
Task carry_out(AnyGroup& group, const Op& op, const Streams& in, const Streams& out) {
  const KindTraits& traits = traits_of(op.kind);
  const bool adds = traits.reduces && op.reduce == ReduceOp::kAdasum && group.size() > 1;
  if (adds) return adasum(group, op, in[0], out[0]);
  if (traits.rooted && (traits.gives_each() || traits.takes_each()))
    return rooted(group, op, in, out);
  return run(group, op, in, out);
}

template Task carry_out(Group&, const Op&, const Streams&, const Streams&);
template Task carry_out(WideGroup&, const Op&, const Streams&, const Streams&);

}  // namespace sirtaki
