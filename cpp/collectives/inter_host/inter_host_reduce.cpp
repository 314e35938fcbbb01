#include "collectives/inter_host/exchange.h"
#include "collectives/inter_host/host_stage.h"
#include "collectives/inter_host/inter_host.h"

namespace sirtaki {
namespace {

/// Reductions of large messages, chunk by chunk. On each host one member works on each lane of a
/// chunk. The members of a host sum the lanes, the hosts exchange their sums, and the members share
/// the results. These steps work on successive chunks, so the network, the shared memory and the
/// reduction overlap.
Task run(InterHostGroup& group, const Op& op, size_t bytes, const Streams& in,
         const Target& target) {
  const Cut cut(group, in, bytes, op.chunk_bytes, radix_for(problem_of(group, op)),
                target.scattered);
  HostStage stage(group, op, in, target, cut);
  Exchange exchange(group, op, target, cut, stage);
  Group& local = group.local();
  InterHostNet& net = group.net();
  co_await exchange.open(greeting_of(op, bytes));
  if (group.shares()) co_await local.begin_stream();
  const uint32_t phases = cut.phases();
  const uint32_t count = cut.count();
  const uint32_t last = 2 + phases * cut.ahead();
  for (uint32_t step = 0; step < count + last; ++step) {
    if (step < count) co_await stage.copy_out(step);
    for (uint32_t phase = 0; phase <= phases; ++phase) {
      const uint32_t lag = 1 + phase * cut.ahead();
      if (step < lag || step - lag >= count) continue;
      const uint32_t q = step - lag;
      co_await net.all_done(exchange.awaited(q, phase), q);
      if (phase == 0 && group.shares()) co_await local.all_published(q + 1);
      phase < phases ? exchange.run(q, phase) : stage.finish();
    }
    if (step >= last) co_await stage.copy_in(step - last);
  }
  co_await net.idle();
  if (group.shares()) local.end();
}

Task reduce_to(InterHostGroup& group, const Op& op, const Streams& in, const Segments* out,
               int root) {
  if (op.longest == 0) co_return;
  Problem problem = problem_of(group, op);
  problem.bytes = bytes_on_way(op, in);
  if (algorithm_for(problem) == Algorithm::kAtOnce) {
    co_await reduce_at_once(group, op, in[0], out);
  } else {
    const Target target{out, false, root};
    co_await run(group, op, problem.bytes, in, target);
  }
}

}  // namespace

Task inter_host_allreduce(InterHostGroup& group, const Op& op, const Streams& in,
                          const Streams& out) {
  return reduce_to(group, op, in, &out[0], -1);
}

Task inter_host_reduce(InterHostGroup& group, const Op& op, const Streams& in, const Streams& out) {
  return reduce_to(group, op, in, group.rank() == op.root ? &out[0] : nullptr, op.root);
}

Task inter_host_reducescatter(InterHostGroup& group, const Op& op, const Streams& in,
                              const Streams& out) {
  if (op.longest == 0) co_return;
  const Target target{&out[0], true, -1};
  co_await run(group, op, op.longest, in, target);
}

}  // namespace sirtaki
