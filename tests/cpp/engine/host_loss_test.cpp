#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "engine/engine.h"
#include "engine_hosts.h"

// Hosts and ranks that are gone: every rank on every host gets an error that names who it was.
namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;
using testing::sum_of;
using testing::VirtualHosts;
using Floats = std::vector<float>;

EngineOptions quick_to_notice() {
  EngineOptions options = testing::quick_options();
  options.host_timeout_seconds = 0.5;
  return options;
}

/// Runs one sum too many on each rank that has an engine; all must fail and name `lost`.
/// `end(engine, rank)` is called on each rank before.
void expect_lost(VirtualHosts& world, const std::vector<int>& ranks, const EngineOptions& options,
                 const std::string& lost, const std::function<void(int)>& end) {
  testing::run_threads(
      static_cast<int>(ranks.size()),
      [&](int i) {
        const int rank = ranks[static_cast<size_t>(i)];
        const auto engine = world.start(rank, options);
        end(rank);
        const Error error = testing::error_of([&] {
          for (;;) {
            Floats values(4);
            testing::sum(*engine, "x", values);
          }
        });
        expect(error.code == ErrorCode::kPeerLost, error.what());
        expect(contains(error.what(), "lost peer " + lost), error.what());
      },
      [](int) {});
}

TEST_CASE("a broken connection between hosts ends the world everywhere") {
  VirtualHosts world({0, 0, 1, 1, 2});
  std::atomic<int> ready{0};
  // Host 1 cannot know better than that rank 0 is gone; the others hear of its leader.
  testing::run_threads(
      5,
      [&](int rank) {
        const auto engine = world.start(rank, testing::quick_options());
        testing::barrier(*engine);
        if (++ready == 5) world.cut(1);
        const Error error = testing::error_of([&] {
          for (;;) {
            Floats values(4);
            testing::sum(*engine, "x", values);
          }
        });
        expect(error.code == ErrorCode::kPeerLost, error.what());
        const bool cut_off = rank == 2 || rank == 3;
        expect(contains(error.what(), cut_off ? "rank 0 (node0)" : "rank 2 (node1)"), error.what());
      },
      [](int) {});
}

TEST_CASE("a lost world that waits for a connection keeps no caller from the engine") {
  VirtualHosts world({0, 1});
  std::atomic<bool> opens{false};
  std::atomic<bool> asked{false};
  std::atomic<bool> gave_up{false};
  Connect connect;  // as Python's, which needs the interpreter that the asking thread may hold
  connect.open = [&](int, int, const Connect::Ended&) -> Fd {
    opens = true;
    const int64_t limit = now_ns() + 20'000'000'000;
    while (!asked && now_ns() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gave_up = !asked;
    throw Error(ErrorCode::kPeerLost, "there is no connection");
  };
  testing::run_threads(
      2,
      [&](int rank) {
        const auto engine = world.start_native(rank, quick_to_notice(), connect);
        Floats values(1 << 16);
        const auto handle = testing::start_sum(*engine, "x", values);
        while (!opens) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (rank == 0) {
          world.cut(1);
          for (int i = 0; i < 300; ++i) {
            engine->process_sets();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          asked = true;
        }
        engine->wait(*handle);
        expect(handle->error()->code == ErrorCode::kPeerLost, handle->error()->what());
      },
      [](int) {});
  CHECK_FALSE(gave_up);
}

TEST_CASE("a rank that dies is named on all hosts") {
  for (const int dies : {1, 3}) {
    VirtualHosts world({0, 0, 1, 1, 2});
    std::vector<int> ranks;
    for (int r = 0; r < 5; ++r) {
      if (r != dies) ranks.push_back(r);
    }
    const std::string who = "rank " + std::to_string(dies) + " (node" + std::to_string(dies / 2);
    std::atomic<int> ready{0};
    expect_lost(world, ranks, testing::quick_options(), who, [&](int) {
      if (++ready == 4) world.links_of(dies).local.clear();
    });
  }
}

TEST_CASE("a rank that cannot go on is named on all hosts") {
  VirtualHosts world({0, 1, 1, 2});
  testing::run_threads(
      4,
      [&](int rank) {
        const auto engine = world.start(rank, testing::quick_options());
        testing::barrier(*engine);
        const Error error = testing::error_of([&] {
          Floats values(4);
          Request request = sum_of("x");
          if (rank == 2) request.shapes = {{4}};
          // A negative number of elements cannot be: the engine of rank 2 gives up.
          std::string nonsense;
          append_frame(nonsense, "\xff");
          engine->with_backend([&](Backend&, const Doorbell&) {
            if (rank == 2) world.regions[1]->down(1, RingEnd::kWrites).write(nonsense);
          });
          testing::sum(*engine, "x", values);
          testing::sum(*engine, "x", values);
        });
        if (rank == 2) {
          expect(contains(error.what(), "unknown control message"), error.what());
        } else {
          expect(contains(error.what(), "lost peer rank 2 (node1)"), error.what());
        }
      },
      [](int) {});
}

TEST_CASE(
    "of a connection that breaks all are told both ends, and nobody that it has lost itself") {
  VirtualHosts world({0, 1, 2});
  testing::run_threads(
      3,
      [&](int rank) {
        const auto engine = world.start(rank, testing::quick_options());
        testing::barrier(*engine);
        if (rank == 1) Doorbell(world.region_of(1), 0, SpinPolicy{}).abort({0, 1, "a bad cable"});
        const Error error = testing::error_of([&] {
          for (;;) {
            Floats values(4);
            testing::sum(*engine, "x", values);
          }
        });
        const std::string told = error.what();
        expect(contains(told,
                        "the connection between rank 1 (node1) and rank 0 (node0) broke\n  because "
                        "a bad cable"),
               told);
        expect(contains(told, "lost peer rank 0") == (rank != 0), told);
      },
      [](int) {});
}

TEST_CASE("a report of a rank that does not exist ends the world as any garbage does") {
  VirtualHosts world({0, 0, 1});
  std::string loss(1, static_cast<char>(Hop::kLost));
  Writer(loss).put(int32_t{3}).put(int32_t{-1}).put_string("");
  world.speak(2, loss);
  expect_lost(world, {0, 1}, testing::quick_options(), "rank 2 (node1)", [](int) {});
}

/// Speaks for a host without an engine.
void beat(VirtualHosts& world, int leader) {
  world.speak(leader, std::string(1, static_cast<char>(Hop::kHeartbeat)));
}

TEST_CASE("a host that falls silent is lost after the timeout") {
  SUBCASE("a leader's") {
    VirtualHosts world({0, 0, 1, 2});
    beat(world, 2);
    expect_lost(world, {0, 1, 3}, quick_to_notice(), "rank 2 (node1)", [](int) {});
  }
  SUBCASE("rank 0's") {
    VirtualHosts world({0, 1, 1});
    REQUIRE(world.links_of(0).hosts.size() == 1);
    beat(world, 0);
    expect_lost(world, {1, 2}, quick_to_notice(), "rank 0 (node0)", [](int) {});
  }
}

TEST_CASE("hosts below a lost one hear of it as those above do") {
  // A chain: rank 0 - rank 2 - rank 3 - rank 4.
  VirtualHosts world({0, 0, 1, 2, 3}, 1);
  std::atomic<int> ready{0};
  testing::run_threads(
      5,
      [&](int rank) {
        const auto engine = world.start(rank, testing::quick_options());
        testing::barrier(*engine);
        if (++ready == 5) world.cut(2);
        const Error error = testing::error_of([&] {
          for (;;) {
            Floats values(4);
            testing::sum(*engine, "x", values);
          }
        });
        expect(error.code == ErrorCode::kPeerLost, error.what());
        // Either end of what was cut is named, whichever a host hears of.
        expect(contains(error.what(), rank < 3 ? "rank 3 (node2)" : "rank 2 (node1)"),
               error.what());
      },
      [](int) {});
}

TEST_CASE("a host below another that falls silent is lost for all") {
  VirtualHosts world({0, 1, 2}, 1);
  const Link& link = world.links_of(2).hosts.at(0);
  REQUIRE(link.rank == 1);
  beat(world, 2);
  expect_lost(world, {0, 1}, quick_to_notice(), "rank 2 (node2)", [](int) {});
}

TEST_CASE("hosts that compute for longer than the timeout are not lost") {
  testing::run_hosts({0, 0, 1, 1}, quick_to_notice(), [](Engine& engine, int rank) {
    Floats values(4, 1.0f);
    testing::sum(engine, "x", values);
    if (rank >= 2) {  // not even when the driver is busy
      engine.with_backend([](Backend&, const Doorbell&) { testing::sleep_ms(1'500); });
    }
    testing::sum(engine, "x", values);
    expect(values[0] == 16.0f, "the sum is right");
  });
}

TEST_CASE("garbage on the connection between hosts ends the world, and nothing else") {
  VirtualHosts world({0, 0, 1});
  world.speak(2, std::string("\0garbage", 8));
  expect_lost(world, {0, 1}, testing::quick_options(), "rank 2 (node1)", [](int) {});
}

TEST_CASE("an altered control message ends the world everywhere and names the connection") {
  VirtualHosts world({0, 0, 1, 2});
  std::atomic<int> ready{0};
  testing::run_threads(
      4,
      [&](int rank) {
        const auto engine = world.start(rank, testing::quick_options());
        testing::barrier(*engine);
        if (++ready == 4) world.inject(1, std::string(64, 'x'));
        const Error error = testing::error_of([&] {
          for (;;) {
            Floats values(4);
            testing::sum(*engine, "x", values);
          }
        });
        expect(error.code == ErrorCode::kPeerLost, error.what());
        expect(
            contains(error.what(),
                     "the connection between rank 0 (node0) and rank 2 (node1) broke\n  because a "
                     "control "
                     "message was altered") ||
                contains(
                    error.what(),
                    "the connection between rank 2 (node1) and rank 0 (node0) broke\n  because a "
                    "control message was altered"),
            error.what());
      },
      [](int) {});
}

}  // namespace
}  // namespace sirtaki
