#include "backends/native.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"

namespace sirtaki {
namespace {

/// A task and the connections that move its bytes.
class NativeWork final : public Work {
 public:
  NativeWork(Task task, InterHostNet* net) : strand_(std::move(task)), net_(net) {}
  ~NativeWork() override {
    // The memory that an operation noted ends with it.
    if (!done_ && net_ != nullptr) net_->drop();
  }

  bool advance() override {
    done_ = strand_.advance();
    return done_;
  }
  bool is_ready() override {
    const bool moved = net_ != nullptr && net_->busy() && net_->progress();
    return moved || strand_.is_ready();
  }
  void prepare(Sleep& sleep) const override {
    if (net_ != nullptr) net_->prepare(sleep);
    // Otherwise it waits only for other hosts.
    const int place = strand_.awaited().place;
    if (place != Awaited::kNobody) sleep.await_data(place);
  }
  Awaited awaited() const override { return strand_.awaited(); }

 private:
  Strand strand_;
  InterHostNet* net_;
  bool done_ = false;
};

}  // namespace

NativeBackend::NativeBackend(Endpoint& endpoint, const HostMap& hosts, MakeNetwork make_network)
    : endpoint_(endpoint), hosts_(hosts), make_network_(std::move(make_network)) {
  std::vector<int> world(static_cast<size_t>(hosts.size()));
  std::iota(world.begin(), world.end(), 0);
  sets_[0] = members_of(0, world);
}

NativeBackend::Members NativeBackend::members_of(int32_t set, const std::vector<int>& ranks) {
  const int here = hosts_.host_of(endpoint_.rank);
  const bool is_local =
      std::ranges::all_of(ranks, [&](int rank) { return hosts_.host_of(rank) == here; });
  Members members;
  if (is_local) {
    members.local = std::make_unique<Group>(endpoint_, hosts_, ranks, set);
  } else {
    members.inter_host =
        std::make_unique<InterHostGroup>(endpoint_, hosts_, ranks, set, make_network_);
  }
  return members;
}

WorkPtr NativeBackend::start(const Op& op, const Streams& in, const Streams& out) {
  const Members& members = sets_.at(op.set);
  return WorkPtr(new (endpoint_.frames) NativeWork(members.carry_out(op, in, out), members.net()));
}

Task NativeBackend::world_barrier() {
  static const Op kBarrier;
  static const Streams kNothing;
  return sets_.at(0).carry_out(kBarrier, kNothing, kNothing);
}

WorkPtr NativeBackend::add_set(int32_t set, const std::vector<int>& ranks) {
  if (set < 0 || set >= Region::kMaxSets) {
    throw Error(ErrorCode::kInvalid,
                "at most " + std::to_string(Region::kMaxSets) + " process sets can exist at a time",
                Scope::kAllMembers);
  }
  return std::make_unique<NativeWork>(add(set, ranks), sets_.at(0).net());
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
  return std::make_unique<NativeWork>(remove(set), sets_.at(0).net());
}

Task NativeBackend::remove(int32_t set) {
  const auto found = sets_.find(set);
  if (found != sets_.end()) {
    co_await found->second.on_host().left();
    sets_.erase(found);
  }
  // After the barrier no rank reads or counts for the set any more: its id can be reused.
  co_await world_barrier();
}

}  // namespace sirtaki
