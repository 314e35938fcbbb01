#include "collectives/collectives.h"

#include "base/error.h"
#include "collectives/algorithm.h"
#include "collectives/cursor.h"

namespace sirtaki {
namespace {

Algorithm choose(const Group& group, const Op& op, const Streams& in, bool heaps) {
  return algorithm_for(
      {.kind = op.kind, .bytes = bytes_on_way(op, in), .members = group.size(), .heaps = heaps});
}

/// Whether to check where the streams lie. Encoded numbers cannot stay there.
bool may_share(Group& group, const Op& op) {
  if (group.heaps() == nullptr || op.codec != CodecId::kNone || traits_of(op.kind).heaps == nullptr)
    return false;
  const size_t bytes = bytes_in_slots(op.kind, op.longest, group.size());
  return group.handshakes().is_due(static_cast<uint32_t>(op.kind), bytes);
}

Task alone(Group&, const Op& op, const Streams& in, const Streams& out) {
  run_alone(op, in, out);
  co_return;
}

Task in_heaps(Group& group, const Op& op, const Streams& in, const Streams& out) {
  const KindTraits& kind = traits_of(op.kind);
  Rest rest{op, in, out};
  co_await kind.heaps(group, op, in, out, rest);
  if (rest.op.longest == 0) co_return;
  co_await kind.slots(group, rest.op, rest.in, rest.out, choose(group, rest.op, rest.in, false));
}

Task run(Group& group, const Op& op, const Streams& in, const Streams& out) {
  const Algorithm algorithm = choose(group, op, in, may_share(group, op));
  if (algorithm == Algorithm::kAlone) return alone(group, op, in, out);
  if (algorithm == Algorithm::kHeaps) return in_heaps(group, op, in, out);
  return traits_of(op.kind).slots(group, op, in, out, algorithm);
}

Task run(InterHostGroup& group, const Op& op, const Streams& in, const Streams& out) {
  const bool averages = op.reduce == ReduceOp::kAverage && is_integer(op.dtype);
  if (averages && traits_of(op.kind).reduces) return inter_host_average(group, op, in, out);
  return traits_of(op.kind).inter_host(group, op, in, out);
}

/// Gather and scatter: an alltoall whose only non-empty streams begin or end at the root.
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
  if (!traits.moves_data()) throw Error(ErrorCode::kInternal, "not a data operation");
  const bool adds = traits.reduces && op.reduce == ReduceOp::kAdasum && group.size() > 1;
  if (adds) return adasum(group, op, in[0], out[0]);
  if (traits.rooted && (traits.gives_each() || traits.takes_each()))
    return rooted(group, op, in, out);
  return run(group, op, in, out);
}

template Task carry_out(Group&, const Op&, const Streams&, const Streams&);
template Task carry_out(InterHostGroup&, const Op&, const Streams&, const Streams&);

}  // namespace sirtaki
