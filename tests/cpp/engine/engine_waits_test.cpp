#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "backends/single.h"
#include "engine_hosts.h"

// What an engine tells of operations that do not go on, and how long it lets them.
namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;
using testing::finish;
using testing::run_engines;
using testing::start_sum;
using Floats = std::vector<float>;

/// Runs `body` in all ranks but 1, which holds its driver's role from the middle of `submit`'s
/// operations until `body` has returned everywhere.
void with_rank_one_stuck(int ranks, const EngineOptions& options,
                         const std::function<void(Engine&)>& submit,
                         const std::function<void(Engine&, int)>& body) {
  std::atomic<int> done{0};
  testing::run_engines(ranks, options, [&](Engine& engine, int rank) {
    if (rank == 1) {
      engine.with_backend([&](Backend&, const Doorbell&) {
        submit(engine);
        while (done < ranks - 1) testing::sleep_ms(1);
      });
    } else {
      submit(engine);
      try {
        body(engine, rank);
      } catch (...) {
        done = ranks;
        throw;
      }
      done.fetch_add(1);
    }
  });
}

std::string shown_of(const Recorded& one) {
  return sirtaki::shown(one.operation, one.tensor, one.awaited.rank);
}

const Recorded* find(const std::vector<Recorded>& operations, const std::string& shown) {
  for (const Recorded& one : operations) {
    if (shown_of(one) == shown) return &one;
  }
  return nullptr;
}

TEST_CASE("a rank tells what it waits for, and what a neighbour that does not run is in") {
  std::vector<Floats> values(3, Floats(1'000'000, 1.0f));
  std::vector<std::shared_ptr<Handle>> handles(3);
  std::atomic<int> next{0};
  const auto submit = [&](Engine& engine) {
    const auto own = static_cast<size_t>(next.fetch_add(1));
    handles[own] = start_sum(engine, "large", values[own]);
  };
  with_rank_one_stuck(3, testing::quick_options(), submit, [&](Engine& engine, int rank) {
    for (;;) {
      const auto snapshot = engine.snapshot(4);
      expect(snapshot.size() == 3, "every rank of the host is there");
      const auto* mine = find(snapshot[static_cast<size_t>(rank)].operations, "allreduce 'large'");
      const auto* theirs = find(snapshot[1].operations, "allreduce 'large'");
      if (mine != nullptr && mine->awaited.rank == 1 && theirs != nullptr) {
        expect(mine->stage == Stage::kUnderWay, "it is under way");
        expect(mine->awaited.phase == Phase::kWrite && mine->awaited.chunk == 0,
               "it waits for the first chunk");
        expect(mine->bytes == 4'000'000, "its size is told");
        expect(theirs->stage == Stage::kSubmitted, "rank 1 has not heard that all have submitted");
        return;
      }
      testing::sleep_ms(1);
    }
  });
}

TEST_CASE("what has ended is told with how it ended") {
  run_engines(2, [](Engine& engine, int rank) {
    Floats value(10, 1.0f);
    testing::sum(engine, "good", value);
    Floats odd(rank == 0 ? 10 : 11, 1.0f);
    testing::error_of([&] { testing::sum(engine, "odd", odd); });
    const auto own = engine.snapshot(4)[static_cast<size_t>(rank)].operations;
    expect(own.size() == 2, "both are there");
    expect(shown_of(own[0]) == "allreduce 'good'" && own[0].stage == Stage::kDone, "one is done");
    expect(shown_of(own[1]) == "allreduce 'odd'" && own[1].stage == Stage::kFailed, "one failed");
    expect(own[0].awaited == Awaited{}, "nothing is waited for");
  });
}

TEST_CASE("a rank that has joined tells what it takes part in") {
  run_engines(2, [](Engine& engine, int rank) {
    if (rank == 1) testing::finished(engine, testing::join_of());
    Floats value(10, 1.0f);
    if (rank == 0) {
      testing::sum(engine, "alone", value);
      testing::finished(engine, testing::join_of());
    }
    const auto snapshot = engine.snapshot(4);
    const auto* joined = find(snapshot[1].operations, "allreduce 'alone'");
    // The other rank may be quicker to end.
    expect(joined != nullptr && joined->submitted_ns > 0, "it is written down");
  });
}

EngineOptions impatient() {
  EngineOptions options = testing::quick_options();
  options.data_timeout_seconds = 0.3;
  options.hosts = {"alpha", "alpha", "alpha"};
  return options;
}

TEST_CASE("an engine whose world has failed sleeps until it ends") {
  const auto region = Region::anonymous(2);
  std::atomic<int> failed{0};
  testing::run_threads(
      2,
      [&](int rank) {
        Engine engine(rank, HostMap::single(2), region, {}, {}, testing::quick_options());
        testing::barrier(engine);
        if (rank == 0) engine.abort("the test ends it");
        testing::error_of([&] { testing::barrier(engine); });
        ++failed;
        while (failed < 2) testing::sleep_ms(1);
        testing::sleep_ms(50);
        const uint32_t before = region->rank(rank).turns;
        testing::sleep_ms(200);
        const uint32_t turns = region->rank(rank).turns - before;
        expect(turns < 10, std::to_string(turns) + " turns");
      },
      [&](int rank) { Doorbell(region, rank, SpinPolicy{}).abort(rank); });
}

TEST_CASE("an operation that makes no progress ends the world with who is waited for") {
  std::vector<Floats> values(2, Floats(1'000'000, 1.0f));
  std::vector<std::shared_ptr<Handle>> handles(2);
  std::atomic<int> told{0};
  testing::run_engines(2, impatient(), [&](Engine& engine, int rank) {
    auto& handle = handles[static_cast<size_t>(rank)];
    const auto submit = [&] {
      handle = start_sum(engine, "large", values[static_cast<size_t>(rank)]);
    };
    if (rank == 1) {
      engine.with_backend([&](Backend&, const Doorbell& doorbell) {
        submit();
        while (!doorbell.aborted()) testing::sleep_ms(1);
      });
    } else {
      submit();
    }
    const Error error = testing::error_of([&] { finish(engine, *handle); });
    expect(error.code == ErrorCode::kTimeout, "it is a timeout on all ranks");
    for (const char* part : {"allreduce 'large' made no progress for 0.3 s on rank 0 (alpha)",
                             "which waits for rank 1 (alpha) to write chunk 0 (it is waiting with "
                             "allreduce 'large'"}) {
      expect(contains(error.what(), part), error.what());
    }
    Floats after(10, 1.0f);
    const Error later = testing::error_of([&] { start_sum(engine, "after", after); });
    expect(later.code == ErrorCode::kTimeout, "later ones fail with it too");
    told.fetch_add(1);
  });
  CHECK(told == 2);
}

/// Goes on after each of some pauses.
class Slow final : public Work {
 public:
  static constexpr int64_t kPauseNs = 150'000'000;
  static constexpr int kPauses = 8;

  bool advance() override {
    next_ns_ = now_ns() + kPauseNs;
    return left_-- == 0;
  }
  bool is_ready() override { return now_ns() >= next_ns_; }
  void prepare(Sleep&) const override {}
  Awaited awaited() const override { return {Phase::kSend, 0}; }

 private:
  int left_ = kPauses;
  int64_t next_ns_ = 0;
};

class SlowBackend : public SingleBackend {
 public:
  WorkPtr start(const Op&, const Streams&, const Streams&) override {
    return std::make_unique<Slow>();
  }
};

TEST_CASE("an operation that takes long but goes on is not ended") {
  EngineOptions options = impatient();
  options.data_timeout_seconds = 1;
  Engine engine(0, HostMap::single(1), Region::anonymous(1), {}, {}, options,
                [](Endpoint&, const HostMap&, const MakeNetwork&) {
                  return std::make_unique<SlowBackend>();
                });
  const int64_t begun = now_ns();
  Floats value(10, 1.0f);
  testing::sum(engine, "slow", value);
  CHECK(now_ns() - begun > 1'000'000'000);
}

// ---- Missing ranks ----

TEST_CASE("a stalled operation's error says what the missing ranks of all hosts are doing") {
  EngineOptions options = testing::quick_options();
  options.stall_shutdown_seconds = 0.5;
  std::atomic<bool> failed{false};
  testing::run_hosts({0, 0, 1, 1}, options, [&](Engine& engine, int rank) {
    Floats before(10, 1.0f);
    testing::sum(engine, "before", before);
    Floats value(10, 1.0f);
    if (rank == 3) start_sum(engine, "another", value);
    if (rank == 0) {
      const Error error = testing::error_of([&] { testing::sum(engine, "mine", value); });
      expect(error.code == ErrorCode::kTimeout, "it is a timeout");
      const std::string text = error.what();
      for (const char* part : {"missing ranks: 1 (node0), 2 (node1), 3 (node1)",
                               "Rank 1: in no operation; the last one, allreduce 'before', ended ",
                               "Rank 2: in no operation; the last one, allreduce 'before', ended ",
                               "Rank 3: waiting with allreduce 'another', submitted "}) {
        expect(contains(text, part), text);
      }
      failed = true;
    }
    while (!failed) testing::sleep_ms(1);
  });
}

TEST_CASE("stalls are found though rank 0's own thread is inside an operation that is stuck") {
  EngineOptions options = testing::quick_options();
  options.stall_shutdown_seconds = 0.5;
  std::atomic<bool> failed{false};
  run_engines(3, options, [&](Engine& engine, int rank) {
    const int32_t stuck = testing::add_set_of(engine, {0, 1});
    const int32_t stalled = testing::add_set_of(engine, {0, 2});
    Floats large(1'000'000, 1.0f);
    Floats small(10, 1.0f);
    std::shared_ptr<Handle> handle;
    if (rank == 0) {
      handle = start_sum(engine, "large", large, stuck);
      const auto missed = start_sum(engine, "small", small, stalled);
      while (!missed->done()) testing::sleep_ms(1);  // nobody waits but the engine's thread
      expect(missed->error()->code == ErrorCode::kTimeout, "it is a timeout");
      failed = true;
    }
    if (rank == 1) {
      engine.with_backend([&](Backend&, const Doorbell&) {
        handle = start_sum(engine, "large", large, stuck);
        while (!failed) testing::sleep_ms(1);
      });
    }
    while (!failed) testing::sleep_ms(1);
    if (handle != nullptr) finish(engine, *handle);
  });
}

TEST_CASE("a snapshot tells what the ranks of all hosts are doing") {
  std::atomic<int> told{0};
  testing::run_hosts({0, 0, 1, 1}, [&](Engine& engine, int rank) {
    Floats before(10, 1.0f);
    testing::sum(engine, "before", before);
    Floats value(10, 1.0f);
    const auto handle = rank == 3 ? nullptr : start_sum(engine, "waits", value);
    for (;;) {
      const auto all = engine.snapshot(4, now_ns() + 5'000'000'000);
      expect(all.size() == 4, "every rank of the world is there");
      const bool known = std::all_of(all.begin(), all.end(), [](const Engine::Snapshot& one) {
        const bool stands = one.state.tensor == (one.rank == 3 ? "before" : "waits");
        return one.state.known() && stands && one.state.completed == 1;
      });
      for (const auto& one : all) {
        const bool here = engine.rank() / 2 == one.rank / 2;
        expect(one.operations.empty() != here, "operations are those of this host");
      }
      if (known) break;
      testing::sleep_ms(1);
    }
    told.fetch_add(1);
    while (told % 4 != 0) testing::sleep_ms(1);
    if (rank == 3) testing::sum(engine, "waits", value);
    if (handle != nullptr) finish(engine, *handle);
  });
}

TEST_CASE("a host that does not answer holds up no error" * doctest::test_suite("slow")) {
  EngineOptions options = testing::quick_options();
  options.stall_shutdown_seconds = 0.5;
  options.host_timeout_seconds = 0;
  testing::VirtualHosts world({0, 1});
  const auto engine = world.start(0, options);  // rank 1 has no engine
  Floats value(10, 1.0f);
  const Error error = testing::error_of([&] { testing::sum(*engine, "mine", value); });
  CHECK(error.code == ErrorCode::kTimeout);
  CHECK(contains(error.what(), "missing ranks: 1 (node1)"));
  CHECK_FALSE(contains(error.what(), "Rank 1:"));
  world.abort_all(1);
}

}  // namespace
}  // namespace sirtaki
