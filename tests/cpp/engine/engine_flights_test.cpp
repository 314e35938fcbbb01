#include <doctest/doctest.h>

#include <atomic>
#include <future>

#include "engines.h"

// What is under way at the same time, and who is told that it is done.
namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;
using testing::finish;
using testing::run_engines;
using testing::start_sum;
using Floats = std::vector<float>;

// ---- Side by side ----

TEST_CASE("an operation that is stuck holds up none of other process sets") {
  // Rank 3 stops in the middle of the pair {2, 3}, by holding its driver's role.
  std::atomic<bool> rest_done{false};
  run_engines(4, [&](Engine& engine, int rank) {
    const int32_t stuck = testing::add_set_of(engine, {2, 3});
    const int32_t others = testing::add_set_of(engine, {0, 1, 2});
    // The second one waits for the first.
    std::vector<Floats> large(2, Floats(1'000'000, 1.0f));
    std::vector<std::shared_ptr<Handle>> handles;
    const auto submit_both = [&] {
      for (size_t i = 0; i < 2; ++i) {
        handles.push_back(start_sum(engine, "large" + std::to_string(i), large[i], stuck));
      }
    };
    if (rank == 3) {
      engine.with_backend([&](Backend&, const Doorbell&) {
        submit_both();
        while (!rest_done) testing::sleep_ms(1);
      });
    } else {
      if (rank == 2) submit_both();
      for (int i = 0; i < 50; ++i) {
        Floats value(100'000, 1.0f);
        testing::sum(engine, "value", value, others);
        expect(value == Floats(value.size(), 3.0f), "the sum is right");
      }
      if (rank == 2) {
        expect(!handles[0]->done(), "the other set's operation is not done");
        rest_done = true;
      }
    }
    for (size_t i = 0; i < handles.size(); ++i) {
      finish(engine, *handles[i]);
      expect(large[i] == Floats(large[i].size(), 2.0f), "what was stuck is right");
    }
  });
}

TEST_CASE("a set's operations run in one order though those of other sets pass them") {
  run_engines(3, [](Engine& engine, int rank) {
    std::vector<int32_t> sets{0};
    for (const auto& ranks : std::vector<std::vector<int64_t>>{{0, 1}, {1, 2}, {0, 2}}) {
      sets.push_back(testing::add_set_of(engine, ranks));
    }
    const std::vector<std::vector<int>> members{{0, 1, 2}, {0, 1}, {1, 2}, {0, 2}};
    std::vector<Floats> values;
    std::vector<float> expected;
    values.reserve(400);
    std::vector<std::shared_ptr<Handle>> handles;
    for (size_t i = 0; i < 400; ++i) {
      const size_t s = i * 7 % 4;
      const auto& of = members[s];
      if (std::find(of.begin(), of.end(), rank) == of.end()) continue;
      values.emplace_back(i % 50 == 0 ? 200'000 : 10, static_cast<float>(i));
      expected.push_back(static_cast<float>(i * of.size()));
      handles.push_back(start_sum(engine, "v" + std::to_string(i), values.back(), sets[s]));
    }
    for (size_t i = 0; i < handles.size(); ++i) {
      finish(engine, *handles[i]);
      expect(values[i] == Floats(values[i].size(), expected[i]), "the sum is right");
    }
  });
}

TEST_CASE("more process sets than areas of slots share them, whatever order ranks submit in") {
  constexpr int kRanks = 5;
  std::vector<std::vector<int64_t>> members;
  for (int64_t a = 0; a < kRanks; ++a) {
    for (int64_t b = a + 1; b < kRanks; ++b) {
      members.push_back({a, b});
      for (int64_t c = b + 1; c < kRanks; ++c) members.push_back({a, b, c});
    }
  }
  CHECK(members.size() > Region::kAreas);
  run_engines(kRanks, [&](Engine& engine, int rank) {
    std::vector<int32_t> sets;
    for (const auto& ranks : members) sets.push_back(testing::add_set_of(engine, ranks));
    std::vector<size_t> own;
    for (size_t s = 0; s < sets.size(); ++s) {
      const auto& of = members[s];
      if (std::find(of.begin(), of.end(), rank) != of.end()) own.push_back(s);
    }
    std::rotate(own.begin(), own.begin() + rank, own.end());
    std::vector<Floats> values(sets.size(), Floats(30'000, 1.0f));
    std::vector<std::shared_ptr<Handle>> handles;
    for (const size_t s : own) {
      handles.push_back(start_sum(engine, std::to_string(s), values[s], sets[s]));
    }
    for (const auto& handle : handles) finish(engine, *handle);
    for (const size_t s : own) {
      const auto sum = static_cast<float>(members[s].size());
      expect(values[s] == Floats(values[s].size(), sum), "the sum is right");
    }
  });
}

TEST_CASE("an abort while operations of several sets are under way ends them all") {
  std::atomic<int> submitted{0};
  std::atomic<int> ended{0};
  run_engines(3, [&](Engine& engine, int rank) {
    const int32_t low = testing::add_set_of(engine, {0, 1});
    const int32_t high = testing::add_set_of(engine, {1, 2});
    const std::vector<int32_t> sets{0, high, low, high, low};
    std::vector<Floats> values(sets.size(), Floats(3'000'000, 1.0f));
    std::vector<std::shared_ptr<Handle>> handles;
    const auto submit_all = [&] {
      for (size_t i = 0; i < sets.size(); ++i) {
        if ((sets[i] == low && rank == 2) || (sets[i] == high && rank == 0)) continue;
        handles.push_back(start_sum(engine, std::to_string(i), values[i], sets[i]));
      }
      submitted.fetch_add(1);
    };
    if (rank == 1) {
      // Nothing goes on without the driver of this rank, which is a member of all sets.
      engine.with_backend([&](Backend&, const Doorbell& doorbell) {
        submit_all();
        while (submitted < 3) testing::sleep_ms(1);
        testing::sleep_ms(20);
        doorbell.abort(1);
      });
    } else {
      submit_all();
    }
    for (const auto& handle : handles) {
      engine.wait(*handle);
      if (handle->error()) ended.fetch_add(1);
    }
  });
  CHECK(ended == 3 + 5 + 3);
}

// ---- Callbacks ----

Submission with_callback(const std::string& name, Floats& values, Handle::OnDone on_done) {
  Submission submission{testing::sum_of(name, {static_cast<int64_t>(values.size())}),
                        {values.data()},
                        {values.data()}};
  submission.handle = std::make_shared<Handle>(std::move(on_done));
  return submission;
}

TEST_CASE("a callback is called once, with the result in place, and may submit again") {
  for (const int ranks : {1, 2, 3}) {
    std::atomic<int> calls{0};
    run_engines(ranks, [&](Engine& engine, int) {
      Floats first(1000, 1.0f);
      Floats second(1000, 1.0f);
      std::promise<std::shared_ptr<Handle>> next;
      const auto handle = engine.submit(with_callback("first", first, [&](const Handle& done) {
        expect(done.done() && !done.error(), "it is done");
        expect(first == Floats(1000, static_cast<float>(ranks)), "the sum is there");
        calls.fetch_add(1);
        next.set_value(engine.submit(
            with_callback("second", second, [&](const Handle&) { calls.fetch_add(1); })));
      }));
      finish(engine, *handle);
      finish(engine, *next.get_future().get());
      expect(second == Floats(1000, static_cast<float>(ranks)), "the second sum is right");
    });
    CHECK(calls == 2 * ranks);
  }
}

TEST_CASE("callbacks come without anybody waiting, also those of failed operations") {
  std::atomic<int> good{0};
  std::atomic<int> failed{0};
  run_engines(2, [&](Engine& engine, int rank) {
    Floats value(10, 1.0f);
    engine.submit(with_callback("good", value, [&](const Handle&) { good.fetch_add(1); }));
    Floats odd(rank == 0 ? 10 : 11, 1.0f);
    engine.submit(with_callback("odd", odd, [&](const Handle& done) {
      if (done.error()->code == ErrorCode::kMismatch) failed.fetch_add(1);
    }));
    while (good < 2 || failed < 2) testing::sleep_ms(1);
  });
  CHECK(good == 2);
  CHECK(failed == 2);
}

TEST_CASE("what is pending when a world ends is called back") {
  std::atomic<int> called{0};
  std::atomic<bool> submitted{false};
  run_engines(2, [&](Engine& engine, int rank) {
    Floats value(10, 1.0f);
    if (rank == 0) {
      engine.submit(with_callback("never", value, [&](const Handle& done) {
        if (done.error()) called.fetch_add(1);
      }));
      submitted = true;
    }
    while (!submitted) testing::sleep_ms(1);
    engine.shutdown();
    if (rank == 0) expect(called == 1, "before shutdown is over");
  });
}

TEST_CASE("a callback that throws harms neither its operation nor later ones") {
  EngineOptions options = testing::quick_options();
  options.log_level = LogLevel::kFatal;
  testing::run_engines(2, options, [](Engine& engine, int) {
    Floats value(10, 1.0f);
    const auto handle = engine.submit(
        with_callback("bad", value, [](const Handle&) { throw std::runtime_error("oops"); }));
    finish(engine, *handle);
    Floats after(10, 1.0f);
    testing::sum(engine, "after", after);
    expect(after == Floats(10, 2.0f), "the sum is right");
  });
}

TEST_CASE("a callback in the engine's own thread may be the last to let go of the engine") {
  const auto region = Region::anonymous(2);
  std::atomic<bool> alone{false};
  std::vector<Floats> values(2, Floats(10, 1.0f));
  for (int rank = 0; rank < 2; ++rank) {
    const auto engine = Engine::share(std::make_unique<Engine>(
        rank, HostMap::single(2), region, LinkSet{}, MakeNetwork(), testing::quick_options()));
    engine->submit(with_callback("last", values[static_cast<size_t>(rank)],
                                 [&alone, owner = engine](const Handle&) mutable {
                                   while (!alone) testing::sleep_ms(1);
                                   owner.reset();
                                 }));
  }
  alone = true;
  while (region.use_count() > 1) testing::sleep_ms(1);  // until nothing of the engines is left
  for (int rank = 0; rank < 2; ++rank) CHECK(region->rank(rank).bye.load() == 1);
  CHECK(values[0] == Floats(10, 2.0f));
}

// ---- Results in the caller's memory ----

Submission gather(Floats& values, Allocate allocate) {
  Submission submission{
      testing::named(Kind::kAllgather, "parts", {static_cast<int64_t>(values.size())}),
      {values.data()},
      {}};
  submission.allocate = std::move(allocate);
  return submission;
}

TEST_CASE("results whose size is negotiated can go into the caller's memory") {
  run_engines(2, [](Engine& engine, int rank) {
    Floats own(static_cast<size_t>(rank) + 1, static_cast<float>(rank));
    Floats result;
    const auto handle =
        engine.submit_and_wait(gather(own, [&](size_t, const Shape& shape, size_t bytes) -> void* {
          expect(shape == Shape{3} && bytes == 12, "the size is told");
          result.resize(3);
          return result.data();
        }));
    testing::check(*handle);
    expect(result == Floats{0, 1, 1}, "all parts are there");
    expect(handle->outputs[0]->data() == reinterpret_cast<std::byte*>(result.data()),
           "it is where the caller wants it");
  });
}

TEST_CASE("a caller without memory gets an error, its peers their results") {
  run_engines(2, [](Engine& engine, int rank) {
    Floats own(2, static_cast<float>(rank));
    const Allocate none = [](size_t, const Shape&, size_t) -> void* {
      throw std::runtime_error("all is in use");
    };
    if (rank == 0) {
      const Error error =
          testing::error_of([&] { testing::check(*engine.submit_and_wait(gather(own, none))); });
      expect(error.code == ErrorCode::kInvalid, "it is the caller's mistake");
      expect(contains(error.what(), "all is in use"), error.what());
    } else {
      testing::check(*engine.submit_and_wait(gather(own, nullptr)));
    }
    Floats after(10, 1.0f);
    testing::sum(engine, "after", after);
  });
}

}  // namespace
}  // namespace sirtaki
