#include "backends/native.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "backends/single.h"
#include "base/error.h"
#include "collectives/collectives.h"
#include "collectives/slots/gather_scatter.h"
#include "collectives/wide/wide.h"

namespace sirtaki {
namespace {

/// `AnyGroup`: on one host, or on several.
template <class AnyGroup>
Task run_in(AnyGroup& group, const Op& op, const Streams& in, const Streams& out) {
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

/// A task and the connections over which its bytes move.
class NativeWork final : public Work {
 public:
  NativeWork(Task task, Sockets* sockets) : strand_(std::move(task)), sockets_(sockets) {}
  ~NativeWork() override {
    // What an operation noted is gone with it.
    if (!done_ && sockets_ != nullptr) sockets_->drop();
  }

  bool advance() override {
    done_ = strand_.advance();
    return done_;
  }
  bool is_ready() override {
    const bool moved = sockets_ != nullptr && sockets_->busy() && sockets_->progress();
    return moved || strand_.is_ready();
  }
  void prepare(Sleep& sleep) const override {
    if (sockets_ != nullptr) sockets_->prepare(sleep);
    // Else it waits for other hosts alone.
    const int place = strand_.awaited().place;
    if (place != Awaited::kNobody) sleep.await_data(place);
  }
  Awaited awaited() const override { return strand_.awaited(); }

 private:
  Strand strand_;
  Sockets* sockets_;
  bool done_ = false;
};

}  // namespace

NativeBackend::NativeBackend(Endpoint& endpoint, const HostMap& hosts, Connect connect)
    : endpoint_(endpoint), hosts_(hosts), connect_(std::move(connect)) {
  std::vector<int> world(static_cast<size_t>(hosts.size()));
  std::iota(world.begin(), world.end(), 0);
  sets_[0] = members_of(0, world);
}

NativeBackend::NativeBackend(Endpoint& endpoint)
    : NativeBackend(endpoint, HostMap::single(endpoint.region->ranks()), Connect()) {}

NativeBackend::Members NativeBackend::members_of(int32_t set, const std::vector<int>& ranks) {
  const int here = hosts_.host_of(endpoint_.rank);
  const bool is_local = std::all_of(ranks.begin(), ranks.end(),
                                    [&](int rank) { return hosts_.host_of(rank) == here; });
  Members members;
  if (is_local) {
    members.local = std::make_unique<Group>(endpoint_, hosts_, ranks, set);
  } else {
    members.wide = std::make_unique<WideGroup>(endpoint_, hosts_, ranks, set, connect_);
  }
  return members;
}

WorkPtr NativeBackend::start(const Op& op, const Streams& in, const Streams& out) {
  Members& members = sets_.at(op.set);
  if (members.wide != nullptr) {
    return std::make_unique<NativeWork>(run_in(*members.wide, op, in, out), members.sockets());
  }
  if (members.local->size() == 1) return immediately([&op, &in, &out] { run_alone(op, in, out); });
  return WorkPtr(new (endpoint_.frames) NativeWork(run_in(*members.local, op, in, out), nullptr));
}

Task NativeBackend::world_barrier() {
  Members& world = sets_.at(0);
  return world.wide != nullptr ? barrier(*world.wide) : barrier(*world.local);
}

WorkPtr NativeBackend::add_set(int32_t set, const std::vector<int>& ranks) {
  if (set < 0 || set >= Region::kMaxSets) {
    throw Error(ErrorCode::kInvalid, "at most " + std::to_string(Region::kMaxSets) +
                                         " process sets can exist at a time");
  }
  return std::make_unique<NativeWork>(add(set, ranks), sets_.at(0).sockets());
}

Task NativeBackend::add(int32_t set, std::vector<int> ranks) {
  Counters& own = endpoint_.region->set_counters(set)[endpoint_.place];
  own.published.store(0);
  own.consumed.store(0);
  own.drained.store(0);
  co_await world_barrier();
  if (std::find(ranks.begin(), ranks.end(), endpoint_.rank) != ranks.end()) {
    sets_[set] = members_of(set, ranks);
  }
}

WorkPtr NativeBackend::remove_set(int32_t set) {
  return std::make_unique<NativeWork>(remove(set), sets_.at(0).sockets());
}

Task NativeBackend::remove(int32_t set) {
  const auto found = sets_.find(set);
  if (found != sets_.end()) {
    co_await found->second.on_host().left();
    sets_.erase(found);
  }
  // Behind the barrier nobody reads or counts for the set any more: its id can be used again.
  co_await world_barrier();
}

}  // namespace sirtaki
