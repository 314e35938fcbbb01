#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/immediate.h"
#include "doctest/doctest.h"
#include "engine/engine.h"
#include "engine_hosts.h"

// Engines without threads of their own: a scheduler calls their rounds, all in one thread.
namespace sirtaki {
namespace {

using testing::sum_of;
using Floats = std::vector<float>;
using Engines = std::vector<std::unique_ptr<Engine>>;

EngineOptions without_threads() {
  EngineOptions options = testing::quick_options();
  options.own_threads = false;
  return options;
}

/// Each in its turn; true if one of them has more to do at once.
bool step(const Engines& engines) {
  bool more = false;
  for (const auto& engine : engines) {
    const int64_t now = now_ns();
    more |= engine->step(now) <= now;
  }
  return more;
}

template <class Done>
void run_until(const Engines& engines, Done done) {
  for (int round = 0; round < 100'000 && !done(); ++round) step(engines);
  REQUIRE(done());
}

/// Until nothing is left to do, then to the end: nobody waits for anybody.
void leave(const Engines& engines) {
  for (const auto& engine : engines) engine->leave();
  for (int round = 0; round < 1000; ++round) step(engines);
  CHECK_FALSE(step(engines));
  for (const auto& engine : engines) CHECK(engine->shutdown());
}

bool all_done(const std::vector<std::shared_ptr<Handle>>& handles) {
  return std::all_of(handles.begin(), handles.end(),
                     [](const auto& handle) { return handle->done(); });
}

TEST_CASE("a scheduler runs the engines of a host in one thread") {
  constexpr int kRanks = 3;
  const auto region = Region::anonymous(kRanks);
  Engines engines;
  for (int r = 0; r < kRanks; ++r) {
    engines.push_back(std::make_unique<Engine>(r, HostMap::single(kRanks), region, LinkSet{},
                                               MakeNetwork(), without_threads()));
  }
  std::vector<Floats> values(kRanks, Floats(100'000, 1.0f));
  for (int round = 0; round < 3; ++round) {  // the second time by short id
    std::vector<std::shared_ptr<Handle>> handles;
    for (int r = 0; r < kRanks; ++r) {
      const auto at = static_cast<size_t>(r);
      handles.push_back(testing::start_sum(*engines[at], "x", values[at]));
    }
    CHECK_FALSE(all_done(handles));
    run_until(engines, [&] { return all_done(handles); });
  }
  for (const Floats& sums : values) CHECK(sums == Floats(100'000, 27.0f));
  std::byte sent{5};
  std::byte got{};
  const auto receive = engines[2]->start({false, 0, 0, 7, &got, 1});
  const auto send = engines[0]->start({true, 2, 0, 7, &sent, 1});
  run_until(engines, [&] { return receive->done() && send->done(); });
  CHECK(got == sent);
  leave(engines);
}

/// Moves nothing: only what ranks agree on goes between hosts.
class Nothing final : public Backend {
 public:
  const char* name() const override { return "nothing"; }
  WorkPtr start(const Op&, const Streams&, const Streams&) override {
    return immediately([] {});
  }
  int track_of(int32_t) const override { return 0; }
  WorkPtr add_set(int32_t, const std::vector<int>&) override {
    return immediately([] {});
  }
  WorkPtr remove_set(int32_t) override {
    return immediately([] {});
  }
};

TEST_CASE("a scheduler runs the engines and relays of several hosts in one thread") {
  for (const int fan_out : {HostTree::kFanOut, 1}) {
    testing::VirtualHosts world({0, 0, 1, 1, 2, 2}, fan_out);
    Engines engines;
    for (int r = 0; r < world.hosts.size(); ++r) {
      engines.push_back(world.start_with(
          [](Endpoint&, const HostMap&, MakeNetwork) { return std::make_unique<Nothing>(); }, r,
          without_threads(), {}));
    }
    for (int round = 0; round < 3; ++round) {
      std::vector<std::shared_ptr<Handle>> handles;
      for (const auto& engine : engines) handles.push_back(engine->submit({Request{}, {}, {}}));
      run_until(engines, [&] { return all_done(handles); });
      for (const auto& handle : handles) testing::check(*handle);
    }
    leave(engines);
  }
}

TEST_CASE("a loss is heard by engines of all hosts without threads") {
  testing::VirtualHosts world({0, 1, 2});
  Engines engines;
  for (int r = 0; r < 3; ++r) {
    engines.push_back(world.start_with(
        [](Endpoint&, const HostMap&, MakeNetwork) { return std::make_unique<Nothing>(); }, r,
        without_threads(), {}));
  }
  std::vector<std::shared_ptr<Handle>> handles;
  for (const int r : {0, 2}) {
    handles.push_back(engines[static_cast<size_t>(r)]->submit({Request{}, {}, {}}));
  }
  engines[1]->abort("this is the reason");
  run_until(engines, [&] { return all_done(handles); });
  for (const auto& handle : handles) {
    REQUIRE(handle->error());
    CHECK(testing::contains(handle->error()->what(), "lost peer rank 1 (node1)"));
  }
}

bool is_unused(const ByteRing& ring) {
  return ring.positions().head == 0 && ring.positions().tail == 0;
}

Engines pair_of_engines(const std::shared_ptr<Region>& region) {
  Engines engines;
  for (int r = 0; r < 2; ++r) {
    engines.push_back(std::make_unique<Engine>(r, HostMap::single(2), region, LinkSet{},
                                               MakeNetwork(), without_threads()));
  }
  return engines;
}

// Else a peer that has not yet looked takes the one that leaves for the reason.
TEST_CASE("a rank that leaves after a loss does not say that it leaves") {
  const auto region = Region::anonymous(2);
  const Engines engines = pair_of_engines(region);
  Doorbell(region, 0, SpinPolicy{}).abort({0, 0, "this is the reason", ErrorCode::kTimeout});
  engines[1]->leave();
  CHECK(is_unused(region->up(1, RingEnd::kReads)));
}

TEST_CASE("rank 0 hears its own decisions without shared memory") {
  const auto region = Region::anonymous(2);
  const Engines engines = pair_of_engines(region);
  std::vector<std::shared_ptr<Handle>> handles;
  for (const auto& engine : engines) handles.push_back(engine->submit({Request{}, {}, {}}));
  run_until(engines, [&] { return all_done(handles); });
  CHECK(is_unused(region->up(0, RingEnd::kReads)));
  CHECK(is_unused(region->down(0, RingEnd::kReads)));
  CHECK_FALSE(is_unused(region->up(1, RingEnd::kReads)));
  CHECK_FALSE(is_unused(region->down(1, RingEnd::kReads)));
  leave(engines);
}

}  // namespace
}  // namespace sirtaki
