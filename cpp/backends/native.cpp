#include "backends/native.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "backends/single.h"
#include "base/error.h"
#include "collectives/collectives.h"
#include "collectives/wide.h"

namespace sirtaki {
namespace {

/// `AnyGroup`: on one host, or on several.
template <class AnyGroup>
void run_in(AnyGroup& group, const Op& op, const Streams& in, const Streams& out) {
  switch (op.kind) {
    case Kind::kAllreduce:
      return op.reduce == ReduceOp::kAdasum ? adasum(group, op, in[0], out[0])
                                            : allreduce(group, op, in[0], out[0]);
    case Kind::kReduce:
      return reduce(group, op, in[0], out[0]);
    case Kind::kAllgather:
      return allgather(group, op, in[0], out);
    case Kind::kBroadcast:
      return broadcast(group, op, in[0], out[0]);
    case Kind::kAlltoall:
      return alltoall(group, op, in, out);
    case Kind::kReducescatter:
      return reducescatter(group, op, in, out[0]);
    case Kind::kGather:
      return gather(group, op, in[0], out);
    case Kind::kScatter:
      return scatter(group, op, in, out[0]);
    case Kind::kBarrier:
      return barrier(group);
    default:
      throw Error(ErrorCode::kInternal, "not a data operation");
  }
}

}  // namespace

NativeBackend::NativeBackend(Endpoint& endpoint, const HostMap& hosts, Connect connect)
    : endpoint_(endpoint),
      hosts_(hosts),
      sockets_(endpoint.rank, endpoint.doorbell, std::move(connect), endpoint.sockets_per_peer) {
  if (hosts.hosts() > 1) endpoint.sockets = &sockets_;
  std::vector<int> world(static_cast<size_t>(hosts.size()));
  std::iota(world.begin(), world.end(), 0);
  sets_[0] = members_of(0, world);
}

NativeBackend::NativeBackend(Endpoint& endpoint)
    : NativeBackend(endpoint, HostMap::single(endpoint.region->ranks()), Connect()) {}

NativeBackend::~NativeBackend() { endpoint_.sockets = nullptr; }

NativeBackend::Members NativeBackend::members_of(int32_t set, const std::vector<int>& ranks) {
  Counters* counters = endpoint_.region->set_counters(set);
  const int here = hosts_.host_of(endpoint_.rank);
  const bool is_local = std::all_of(ranks.begin(), ranks.end(),
                                    [&](int rank) { return hosts_.host_of(rank) == here; });
  Members members;
  if (is_local) {
    members.local = std::make_unique<Group>(endpoint_, hosts_, ranks, counters, true);
  } else {
    members.wide = std::make_unique<WideGroup>(endpoint_, hosts_, ranks, counters);
  }
  return members;
}

void NativeBackend::world_barrier() {
  const Op op;
  run_in_set(sets_.at(0), op, Streams(1), Streams(1));
}

void NativeBackend::add_set(int32_t set, const std::vector<int>& ranks) {
  if (set < 0 || set >= Region::kMaxSets) {
    throw Error(ErrorCode::kInvalid, "at most " + std::to_string(Region::kMaxSets) +
                                         " process sets can exist at a time");
  }
  Counters& own = endpoint_.region->set_counters(set)[endpoint_.place];
  own.published.store(0);
  own.consumed.store(0);
  own.drained.store(0);
  world_barrier();
  if (std::find(ranks.begin(), ranks.end(), endpoint_.rank) != ranks.end()) {
    sets_[set] = members_of(set, ranks);
  }
}

void NativeBackend::remove_set(int32_t set) {
  const auto found = sets_.find(set);
  if (found != sets_.end()) {
    Members& members = found->second;
    (members.local != nullptr ? *members.local : members.wide->local()).leave();
    sets_.erase(found);
  }
  // Behind the barrier nobody reads or counts for the set any more: its id can be used again.
  world_barrier();
}

void NativeBackend::run(const Op& op, const Streams& in, const Streams& out) {
  if (op.kind == Kind::kSend || op.kind == Kind::kRecv) return run_pair(op, in, out);
  run_in_set(sets_.at(op.set), op, in, out);
}

void NativeBackend::run_in_set(Members& members, const Op& op, const Streams& in,
                               const Streams& out) {
  if (members.local != nullptr && members.local->size() == 1) return run_alone(op, in, out);
  if (members.local != nullptr) return run_in(*members.local, op, in, out);
  const DropOnError guard(sockets_);
  run_in(*members.wide, op, in, out);
}

void NativeBackend::run_pair(const Op& op, const Streams& in, const Streams& out) {
  const bool sends = op.kind == Kind::kSend;
  if (hosts_.host_of(op.root) != hosts_.host_of(endpoint_.rank)) {
    const DropOnError guard(sockets_);
    Op copy = op;
    copy.kind = Kind::kSend;
    return sends ? send_to_host(sockets_, op.root, copy, in[0])
                 : receive_from_host(sockets_, op.root, copy, out[0]);
  }
  Group& pair = pair_with(op.root);
  Op copy = op;
  copy.kind = Kind::kBroadcast;
  copy.root = sends ? pair.rank() : 1 - pair.rank();
  broadcast(pair, copy, sends ? in[0] : Segments(), sends ? Segments() : out[0]);
}

Group& NativeBackend::pair_with(int rank) {
  std::unique_ptr<Group>& pair = pairs_[rank];
  if (pair == nullptr) {
    const int low = std::min(rank, endpoint_.rank);
    const int high = std::max(rank, endpoint_.rank);
    Counters* counters =
        endpoint_.region->pair_counters(hosts_.place_of(low), hosts_.place_of(high));
    pair = std::make_unique<Group>(endpoint_, hosts_, std::vector<int>{low, high}, counters, false);
  }
  return *pair;
}

}  // namespace sirtaki
