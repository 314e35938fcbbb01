#include <atomic>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "engine/engine.h"
#include "engine_hosts.h"

// What is asked of an engine that has ended: its region may be another engine's by then.
namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;

TEST_CASE("an engine that has ended leaves its region alone") {
  testing::VirtualHosts world({0, 0});
  std::atomic<int> left{0};
  testing::run_threads(
      2,
      [&](int rank) {
        const auto engine = world.start(rank, testing::quick_options());
        testing::barrier(*engine);
        engine->shutdown();
        ++left;
        while (left < 2) std::this_thread::yield();
        Parking& successors = world.region_of(rank)->rank(rank).engine;
        constexpr uint32_t kSuccessors = 1 << 20;
        successors.park(kSuccessors);
        std::vector<std::byte> data(8);
        const Transfer receive{false, 1 - rank, 0, 3, data.data(), data.size()};
        for (const bool waits : {false, true}) {
          const auto handle = waits ? engine->start_and_wait(receive) : engine->start(receive);
          expect(handle->done() && handle->error().has_value(), "it fails at once");
          expect(contains(handle->error()->what(), "shut down"), handle->error()->what());
          engine->withdraw(handle);
        }
        engine->abort("too late");
        expect(successors.wants() == kSuccessors, "what its successor wants is as it was");
        expect(world.region_of(rank)->lost_rank() < 0, "nobody is lost");
      },
      [](int) {});
}

}  // namespace
}  // namespace sirtaki
