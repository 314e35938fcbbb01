#include "engine_hosts.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "engine/engine.h"

// The engine's side of a world on several hosts: negotiation, errors, leaving.
namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;
using testing::finish;
using testing::finished;
using testing::run_hosts;
using testing::sum_of;
using Floats = std::vector<float>;

/// Which host each rank is on, in several shapes of world.
const std::vector<std::vector<int>> kLayouts = {
    {0, 1}, {0, 0, 1, 1}, {0, 1, 1}, {0, 0, 1}, {0, 1, 2, 2, 2, 1}, {0, 1, 0, 1, 2},
};

float total(size_t ranks) { return static_cast<float>(ranks * (ranks + 1)) / 2; }

Error sum_error(Engine& engine, const std::string& name, size_t count = 4, int32_t set = 0) {
  Floats values(count);
  return testing::error_of([&] { testing::sum(engine, name, values, set); });
}

/// Submits the tensors of one step in an order of its own and waits in another.
void random_step(Engine& engine, int rank, size_t ranks, std::mt19937& random) {
  constexpr size_t kTensors = 30;
  std::vector<Floats> tensors;
  for (size_t i = 0; i < kTensors; ++i) {
    tensors.emplace_back(i, static_cast<float>(rank + 1) * static_cast<float>(i));
  }
  std::vector<size_t> order(kTensors);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::shared_ptr<Handle>> handles(kTensors);
  for (const size_t i : order) {
    handles[i] = testing::start_sum(engine, "grad." + std::to_string(i), tensors[i]);
  }
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    finish(engine, *handles[i]);
    const float expected = total(ranks) * static_cast<float>(i);
    expect(tensors[i] == Floats(i, expected), "every tensor is right");
  }
}

TEST_CASE("ranks on several hosts match named and unnamed operations") {
  for (const auto& layout : kLayouts) {
    CAPTURE(layout.size());
    run_hosts(layout, [&](Engine& engine, int rank) {
      std::mt19937 random(static_cast<unsigned>(rank));
      for (int step = 0; step < 5; ++step) random_step(engine, rank, layout.size(), random);
      for (int i = 0; i < 50; ++i) {
        Floats value(1, static_cast<float>(rank + 1));
        Floats two(2, static_cast<float>(rank + 1));
        testing::sum(engine, "", value);
        testing::sum(engine, "", two);
        expect(value[0] == total(layout.size()) && two[1] == value[0], "unnamed ones match");
        testing::barrier(engine);
      }
    });
  }
}

TEST_CASE("a cache of two ids is flushed across hosts") {
  EngineOptions options = testing::quick_options();
  options.cache_capacity = 2;
  run_hosts({0, 0, 1, 1, 2}, options, [](Engine& engine, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int step = 0; step < 5; ++step) random_step(engine, rank, 5, random);
  });
}

TEST_CASE("several threads of each rank submit across hosts") {
  run_hosts({0, 0, 1, 1}, [](Engine& engine, int rank) {
    testing::run_threads(
        3,
        [&](int t) {
          for (int i = 0; i < 100; ++i) {
            Floats value(1, static_cast<float>(rank + 1));
            testing::sum(engine, "thread" + std::to_string(t), value);
            expect(value[0] == 10.0f, "blocking calls are right");
          }
        },
        [](int) {});
  });
}

TEST_CASE("far more messages than the rings hold") {
  constexpr int kCount = 2'000;
  std::atomic<int> submitted{0};
  run_hosts({0, 0, 1, 1}, [&](Engine& engine, int rank) {
    const std::string name(100, 'n');
    std::vector<Floats> values(kCount, Floats(1, static_cast<float>(rank + 1)));
    std::vector<std::shared_ptr<Handle>> handles;
    const auto submit = [&](Backend*) {
      for (int i = 0; i < kCount; ++i) {
        handles.push_back(
            testing::start_sum(engine, name + std::to_string(i), values[static_cast<size_t>(i)]));
      }
      ++submitted;
      while (submitted < 4) std::this_thread::yield();
      testing::sleep_ms(50);
    };
    // On two ranks nobody reads what comes meanwhile.
    if (rank % 2 == 1) {
      engine.with_backend([&](Backend& backend, const Doorbell&) { submit(&backend); });
    } else {
      submit(nullptr);
    }
    for (const auto& handle : handles) finish(engine, *handle);
    for (const Floats& value : values) expect(value[0] == 10.0f, "all are right");
  });
}

TEST_CASE("process sets inside one host and across hosts") {
  run_hosts({0, 0, 1, 1, 2}, [](Engine& engine, int rank) {
    for (int round = 0; round < 3; ++round) {
      const int32_t inside = testing::add_set_of(engine, {2, 3});
      const int32_t across = testing::add_set_of(engine, {1, 3, 4});
      for (int i = 0; i < 20; ++i) {
        Floats values(3, static_cast<float>(rank));
        if (rank == 2 || rank == 3) {
          testing::sum(engine, i % 2 == 0 ? "x" : "", values, inside);
          expect(values == Floats(3, 5.0f), "of the set inside");
        }
        values.assign(3, static_cast<float>(rank));
        if (rank == 1 || rank >= 3) {
          testing::sum(engine, i % 3 == 0 ? "x" : "", values, across);
          expect(values == Floats(3, 8.0f), "of the set across");
        }
      }
      finished(engine, testing::remove_set(inside));
      finished(engine, testing::remove_set(across));
      expect(engine.process_sets().size() == 1, "all are removed");
    }
  });
}

TEST_CASE("ranks join on several hosts") {
  run_hosts({0, 1, 1, 0}, [](Engine& engine, int rank) {
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i <= rank; ++i) {
        Floats values(5, 1.0f);
        testing::sum(engine, round == 0 ? "x" : "", values);
        expect(values == Floats(5, static_cast<float>(4 - i)), "who is left counts");
      }
      expect(finished(engine, testing::join_of())->value == 3, "the last one is named");
    }
  });
}

TEST_CASE("a mismatch between hosts is an error on all ranks that names both") {
  run_hosts({0, 0, 1, 1}, [](Engine& engine, int rank) {
    for (int round = 0; round < 3; ++round) {
      const Error error = sum_error(engine, "x", rank == 3 ? 5 : 4);
      expect(error.code == ErrorCode::kMismatch, "a mismatch");
      expect(contains(error.what(), "rank 3 has [5]") && contains(error.what(), "has [4]"),
             error.what());
      Floats values(4, 1.0f);
      testing::sum(engine, "x", values);
      expect(values[0] == 4.0f, "the world goes on");
    }
  });
}

TEST_CASE("an operation that a remote rank does not submit names that rank and its host" *
          doctest::test_suite("slow")) {
  EngineOptions options = testing::quick_options();
  options.stall_shutdown_seconds = 0.5;
  std::atomic<int> failed{0};
  run_hosts({0, 0, 1, 2, 2}, options, [&](Engine& engine, int rank) {
    if (rank == 4) {
      while (failed < 4) testing::sleep_ms(1);
      failed = 0;
    } else {
      const Error error = sum_error(engine, "x");
      expect(error.code == ErrorCode::kTimeout, "a timeout");
      expect(contains(error.what(), "missing ranks: 4 (node2). Rank 4: in no operation yet"),
             error.what());
      ++failed;
    }
    testing::barrier(engine);
  });
}

// ---- Leaving ----

TEST_CASE("ranks of several hosts leave in any order") {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    std::atomic<size_t> left{0};
    run_hosts({0, 0, 1, 1}, [&](Engine& engine, int rank) {
      testing::barrier(engine);
      while (order[left] != rank) std::this_thread::yield();
      engine.shutdown();
      if (left < 3) ++left;
    });
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("who goes on after a remote rank has left is told so") {
  for (const int leaves : {0, 1, 2, 3}) {
    run_hosts({0, 0, 1, 1}, [&](Engine& engine, int rank) {
      testing::barrier(engine);
      if (rank == leaves) return;
      const Error error = sum_error(engine, "x");
      expect(contains(error.what(), "shut down: rank " + std::to_string(leaves)), error.what());
    });
  }
}

TEST_CASE("operations that all have submitted complete although a leader leaves at once") {
  for (const int leaves : {0, 2}) {
    run_hosts({0, 0, 1, 1}, [&](Engine& engine, int rank) {
      const int32_t others = testing::add_set_of(
          engine, leaves == 0 ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{0, 3});
      const std::vector<int> members = engine.process_sets().at(others);
      if (std::find(members.begin(), members.end(), rank) == members.end()) return;
      // Either it was agreed on before the leader left, then it completes, or it fails.
      Floats values(4, 1.0f);
      try {
        testing::sum(engine, "x", values, others);
        expect(values[0] == 2.0f, "the sum is right");
      } catch (const Error& error) {
        expect(contains(error.what(), "shut down"), error.what());
      }
    });
  }
}

}  // namespace
}  // namespace sirtaki
