#include "collectives/rounded_sum.h"
#include "collectives/wide/direct_exchange.h"
#include "collectives/wide/halving_exchange.h"
#include "collectives/wide/host_stage.h"
#include "collectives/wide/ring_exchange.h"
#include "collectives/wide/wide.h"

namespace sirtaki {
namespace {

/// Reductions of large messages, chunk by chunk. Each part of a chunk is one member's of each host.
/// The members of a host sum parts up, the hosts exchange their sums, and the members share the
/// results. These steps work on successive chunks, so the network, the shared memory and the
/// reduction overlap.
template <class Exchange, class Cut>
Task run(WideGroup& group, const Op& op, size_t bytes, const Streams& in, const Target& target,
         const Cut& cut) {
  HostStage stage(group, op, in, target, cut);
  Exchange exchange(group, op, target, cut, stage);
  Group& local = group.local();
  Sockets& net = group.sockets();
  co_await exchange.open(greeting_of(op, bytes));
  if (group.shares()) co_await local.begin_stream();
  const uint32_t phases = exchange.phases();
  const uint32_t count = cut.count();
  const uint32_t last = 2 + phases * cut.ahead();
  for (uint32_t step = 0; step < count + last; ++step) {
    if (step < count) co_await stage.copy_out(step);
    for (uint32_t phase = 0; phase <= phases; ++phase) {
      const uint32_t lag = 1 + phase * cut.ahead();
      if (step < lag || step - lag >= count) continue;
      const uint32_t q = step - lag;
      co_await net.all_reached(exchange.awaited(q, phase), q);
      if (phase == 0 && group.shares()) co_await local.all_published(q + 1);
      phase < phases ? exchange.run(q, phase) : stage.finish();
    }
    if (step >= last) co_await stage.copy_in(step - last);
  }
  co_await net.idle();
  if (group.shares()) local.end();
}

Task run(WideGroup& group, const Op& op, size_t bytes, const Streams& in, const Target& target,
         Exchange exchange) {
  if (exchange == Exchange::kDirect) {
    const MemberCut cut(group, in, bytes, op.chunk_bytes, target.scattered);
    co_await run<DirectExchange>(group, op, bytes, in, target, cut);
  } else if (exchange == Exchange::kHalving) {
    const HalvingCut cut(group, in, bytes, op.chunk_bytes, target.scattered);
    co_await run<HalvingExchange>(group, op, bytes, in, target, cut);
  } else {
    const RingCut cut(group, in, bytes, op.chunk_bytes, target.scattered, target.root);
    co_await run<RingExchange>(group, op, bytes, in, target, cut);
  }
}

Task reduce_to(WideGroup& group, const Op& op, const Segments& in, const Segments* out, int root) {
  if (in.bytes() == 0) co_return;
  const Exchange exchange =
      exchange_for(group.rules(), shape_of(group), in.bytes(), rounds(op.dtype, op.reduce));
  if (exchange == Exchange::kGathered) {
    co_await reduce_at_once(group, op, in, out);
  } else {
    const Streams stream{in};
    const Target target{out, false, root};
    co_await run(group, op, in.bytes(), stream, target, exchange);
  }
}

Task reduce_rounded(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  const RoundedSum sum(op, in);
  co_await allreduce(group, sum.op(), sum.stream(), sum.stream());
  sum.deliver(out);
}

}  // namespace

Task allreduce(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  if (op.wire != WireFormat::kOwn) return reduce_rounded(group, op, in, out);
  return reduce_to(group, op, in, &out, -1);
}

Task reduce(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  return reduce_to(group, op, in, group.rank() == op.root ? &out : nullptr, op.root);
}

Task reducescatter(WideGroup& group, const Op& op, const Streams& in, const Segments& out) {
  if (op.longest == 0) co_return;
  const Target target{&out, true, -1};
  const Exchange exchange =
      exchange_for_streams(group.rules(), shape_of(group), op.longest, rounds(op.dtype, op.reduce));
  co_await run(group, op, op.longest, in, target, exchange);
}

}  // namespace sirtaki
