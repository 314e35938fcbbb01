#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "engine/callers.h"
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

TEST_CASE("rank 0 can abort while its operations end") {
  constexpr int kWorlds = 30;
  for (int i = 0; i < kWorlds; ++i) {
    testing::run_engines(2, [&](Engine& engine, int rank) {
      std::thread other;
      if (rank == 0) {
        other = std::thread([&engine, i] {
          std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
          engine.abort("enough");
        });
      }
      std::vector<std::vector<float>> values(8, std::vector<float>(1024));
      try {
        for (int step = 0;; ++step) {
          std::vector<std::shared_ptr<Handle>> handles;
          for (size_t k = 0; k < values.size(); ++k) {
            handles.push_back(testing::start_sum(engine, std::to_string(k), values[k]));
          }
          for (const auto& handle : handles) testing::finish(engine, *handle);
        }
      } catch (const Error& error) {
        expect(error.code != ErrorCode::kInvalid, error.what());
      }
      if (rank == 0) other.join();
    });
  }
}

TEST_CASE("a message that is started while the engine ends does, too") {
  constexpr int kWorlds = 20;
  constexpr int64_t kPatienceNs = 20'000'000'000;
  for (int i = 0; i < kWorlds; ++i) {
    testing::run_engines(2, [&](Engine& engine, int rank) {
      std::atomic<bool> over{false};
      std::thread other([&] {
        while (!over) {
          std::byte byte{};
          const auto handle = engine.start({false, 1 - rank, 0, 0, &byte, 1});
          if (!engine.wait(*handle, now_ns() + kPatienceNs)) std::abort();  // it reads `byte`
        }
      });
      testing::barrier(engine);
      engine.shutdown();
      over = true;
      other.join();
    });
  }
}

TEST_CASE("an engine that cannot be made is not asked for its progress") {
  testing::VirtualHosts world({0, 0});
  EngineOptions options = testing::quick_options();
  options.heartbeat = 0;  // which wants a thread, and for it a descriptor
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  CHECK_THROWS_AS(world.start(1, options), Error);
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK_NOTHROW(Callers::of_process().check_failed());
}

}  // namespace
}  // namespace sirtaki
