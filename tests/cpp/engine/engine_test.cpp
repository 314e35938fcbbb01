#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backends/immediate.h"
#include "base/frames.h"
#include "doctest/doctest.h"
#include "engines.h"

namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;
using testing::finish;
using testing::finished;
using testing::named;
using testing::run_engines;
using testing::sum_of;
using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;

float total(int ranks) { return static_cast<float>(ranks * (ranks + 1)) / 2; }

// ---- Every kind ----

Request of_longs(Kind kind, const Shape& shape) {
  Request request = named(kind, "", shape);
  request.dtype = Dtype::kI64;
  return request;
}

/// The rows of an output the engine allocated.
Longs output(const Handle& handle, size_t t = 0) {
  const Buffer& buffer = *handle.outputs.at(t);
  const auto* from = reinterpret_cast<const int64_t*>(buffer.data());
  return {from, from + buffer.bytes() / sizeof(int64_t)};
}

void check_reductions(Engine& engine, int rank, int ranks) {
  Floats values(1000, static_cast<float>(rank + 1));
  testing::sum(engine, "in place", values);
  expect(values == Floats(1000, total(ranks)), "allreduce sums in place");

  const Longs in = {rank, -rank, 10};
  Longs out(3);
  Request average = of_longs(Kind::kAllreduce, {3});
  average.reduce = ReduceOp::kAverage;
  finished(engine, average, {in.data()}, {out.data()});
  const int64_t mean = ranks * (ranks - 1) / 2 / ranks;
  expect(out[0] == mean && out[1] == -mean, "averages of integers are truncated toward zero");

  Request reduce = of_longs(Kind::kReduce, {3});
  reduce.reduce = ReduceOp::kMax;
  reduce.root = ranks - 1;
  out = {-1, -1, -1};
  finished(engine, reduce, {in.data()}, {out.data()});
  const Longs untouched = {-1, -1, -1};
  expect(out == (rank == ranks - 1 ? Longs{ranks - 1, 0, 10} : untouched),
         "reduce writes on the root alone");

  Longs rows(static_cast<size_t>(2 * (ranks + 1)), rank + 1);
  const auto scattered =
      finished(engine, of_longs(Kind::kReducescatter, {ranks + 1, 2}), {rows.data()});
  const auto own = static_cast<size_t>(rows_of(ranks + 1, ranks, rank));
  expect(scattered->outputs.at(0)->shape() == Shape{static_cast<int64_t>(own), 2},
         "the first rank gets the row that is left over");
  expect(output(*scattered) == Longs(2 * own, static_cast<int64_t>(total(ranks))),
         "reducescatter sums rows");
}

void check_gathering(Engine& engine, int rank, int ranks) {
  const Longs in(static_cast<size_t>(2 * rank), rank);
  Longs expected;
  for (int64_t r = 0; r < ranks; ++r)
    expected.insert(expected.end(), static_cast<size_t>(2 * r), r);
  const auto all = finished(engine, of_longs(Kind::kAllgather, {rank, 2}), {in.data()});
  expect(output(*all) == expected, "allgather takes a different number of rows of each rank");
  expect(all->outputs[0]->shape() == Shape{ranks * (ranks - 1) / 2, 2}, "rows add up");
  Longs rows(static_cast<size_t>(ranks));
  std::iota(rows.begin(), rows.end(), 0);
  expect(all->received_splits == rows, "and are told of each rank");

  Request gather = of_longs(Kind::kGather, {rank, 2});
  gather.root = ranks / 2;
  const auto gathered = finished(engine, gather, {in.data()});
  expect(gathered->outputs.size() == (rank == gather.root ? 1 : 0), "only the root gathers");
  if (rank == gather.root) expect(output(*gathered) == expected, "gather is in rank order");
}

void check_moving(Engine& engine, int rank, int ranks) {
  Longs data = {rank, rank * 2};
  Request broadcast = of_longs(Kind::kBroadcast, {2});
  broadcast.root = ranks - 1;
  Longs out(2);
  finished(engine, broadcast, {data.data()}, {out.data()});
  expect(out == Longs{ranks - 1, 2 * (ranks - 1)}, "broadcast gives the root's values");

  Longs parts(static_cast<size_t>(ranks));
  std::iota(parts.begin(), parts.end(), 100 * rank);
  std::vector<const void*> pointers;
  for (const int64_t& part : parts) pointers.push_back(&part);
  Request scatter = of_longs(Kind::kScatter, {1});
  scatter.root = 0;
  int64_t got = -1;
  finished(engine, scatter, pointers, {&got});
  expect(got == rank, "scatter gives each rank its part");

  // Rank a sends (a + b) % 3 rows to rank b.
  Request alltoall = of_longs(Kind::kAlltoall, {0});
  Longs sent;
  Longs expected;
  Longs received;
  for (int64_t b = 0; b < ranks; ++b) {
    const auto rows = static_cast<size_t>((rank + b) % 3);
    alltoall.splits.push_back(static_cast<int64_t>(rows));
    sent.insert(sent.end(), rows, 10 * rank + b);
    expected.insert(expected.end(), rows, 10 * b + rank);
    received.push_back(static_cast<int64_t>(rows));
  }
  alltoall.shapes = {{static_cast<int64_t>(sent.size())}};
  const auto exchanged = finished(engine, alltoall, {sent.data()});
  expect(output(*exchanged) == expected, "alltoall exchanges rows");
  expect(exchanged->received_splits == received, "and tells how many came from whom");
}

TEST_CASE("every kind of operation works through the engine") {
  for (const int n : testing::kWorlds) {
    CAPTURE(n);
    run_engines(n, [n](Engine& engine, int rank) {
      for (int round = 0; round < 3; ++round) {  // the second time by short id
        check_reductions(engine, rank, n);
        check_gathering(engine, rank, n);
        check_moving(engine, rank, n);
        testing::barrier(engine);
      }
    });
  }
}

TEST_CASE("a group of tensors is reduced together, each with its own output") {
  run_engines(3, [](Engine& engine, int rank) {
    Floats a(5, static_cast<float>(rank));
    Floats b;
    Floats c(20'000, 1.0f);
    Floats out_a(a.size());
    Floats out_c(c.size());
    Request group = sum_of("group");
    group.shapes = {{5}, {0}, {2, 10'000}};
    finished(engine, group, {a.data(), b.data(), c.data()}, {out_a.data(), b.data(), out_c.data()});
    expect(out_a == Floats(5, 3.0f) && out_c == Floats(c.size(), 3.0f), "all are summed");
  });
}

// ---- Many operations ----

TEST_CASE("ten thousand small operations, one after the other") {
  for (const int n : {1, 2, 3}) {
    const int count = testing::kSanitized && n > 1 ? 2'000 : 10'000;
    run_engines(n, [&](Engine& engine, int rank) {
      Floats value(1);
      for (int i = 0; i < count; ++i) {
        value[0] = static_cast<float>((rank + 1) * (i % 100));
        testing::sum(engine, "", value);
        expect(value[0] == total(n) * static_cast<float>(i % 100), "every sum is right");
      }
    });
  }
}

TEST_CASE("thousands of small operations in flight at a time") {
  constexpr int kCount = 3'000;
  for (const int n : {1, 2, 4}) {
    run_engines(n, [&](Engine& engine, int rank) {
      std::vector<Floats> values(kCount, Floats(3, static_cast<float>(rank + 1)));
      std::vector<std::shared_ptr<Handle>> handles;
      for (int i = 0; i < kCount; ++i) {
        handles.push_back(
            testing::start_sum(engine, "t" + std::to_string(i), values[static_cast<size_t>(i)]));
      }
      for (const auto& handle : handles) finish(engine, *handle);
      for (const Floats& value : values) expect(value == Floats(3, total(n)), "all are right");
    });
  }
}

/// Submits the tensors of one step in an order of its own and waits in another.
void random_step(Engine& engine, int rank, int ranks, const std::string& prefix,
                 std::mt19937& random) {
  constexpr size_t kTensors = 40;
  std::vector<Floats> tensors;
  for (size_t i = 0; i < kTensors; ++i) {
    tensors.emplace_back(i * i * 3, static_cast<float>(rank + 1) * static_cast<float>(i));
  }
  std::vector<size_t> order(kTensors);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::shared_ptr<Handle>> handles(kTensors);
  for (const size_t i : order) {
    handles[i] = testing::start_sum(engine, prefix + std::to_string(i), tensors[i]);
  }
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    finish(engine, *handles[i]);
    const float expected = total(ranks) * static_cast<float>(i);
    expect(std::all_of(tensors[i].begin(), tensors[i].end(),
                       [&](float value) { return value == expected; }),
           "every tensor is right");
  }
}

TEST_CASE("named operations may be submitted in any order on each rank") {
  for (const int n : {2, 3, 7}) {
    run_engines(n, [n](Engine& engine, int rank) {
      std::mt19937 random(static_cast<unsigned>(rank));
      for (int step = 0; step < 6; ++step) random_step(engine, rank, n, "grad.", random);
    });
  }
}

TEST_CASE("a cache of two ids and a small fusion threshold change nothing but the speed") {
  EngineOptions options = testing::quick_options();
  options.cache_capacity = 2;
  options.fusion_bytes = 8'000;
  run_engines(3, options, [](Engine& engine, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int step = 0; step < 6; ++step) random_step(engine, rank, 3, "grad.", random);
  });
}

TEST_CASE("rank 0's chunk size counts on all ranks") {
  const std::shared_ptr<Region> region = Region::anonymous(3);
  testing::run_threads(
      3,
      [&](int r) {
        EngineOptions options = testing::quick_options();
        options.chunk_bytes = (r + 1) * 4096;
        Engine engine(r, HostMap::single(3), region, {}, {}, options);
        for (int i = 0; i < 5; ++i) {
          Floats values(300'000);
          std::iota(values.begin(), values.end(), static_cast<float>(r));
          testing::sum(engine, "x", values);
          for (size_t at = 0; at < values.size(); ++at) {
            expect(values[at] == 3.0f * static_cast<float>(at) + 3.0f, "every element is right");
          }
        }
      },
      [&](int r) { Doorbell(region, r, SpinPolicy{}).abort(r); });
}

TEST_CASE("several threads of each rank submit and wait at the same time") {
  for (const int n : {1, 2, 4}) {
    run_engines(n, [n](Engine& engine, int rank) {
      testing::run_threads(
          3,
          [&](int t) {
            std::mt19937 random(static_cast<unsigned>(10 * rank + t));
            const std::string prefix = "thread" + std::to_string(t) + ".";
            for (int step = 0; step < 4; ++step) random_step(engine, rank, n, prefix, random);
            Floats value(1);
            for (int i = 0; i < 200; ++i) {
              value[0] = 1.0f;
              testing::sum(engine, prefix + "sync", value);
              expect(value[0] == static_cast<float>(n), "blocking calls are right");
            }
          },
          [](int) {});
    });
  }
}

TEST_CASE("an operation completes on a rank whose threads do not wait for it") {
  run_engines(2, [](Engine& engine, int rank) {
    for (int i = 0; i < 20; ++i) {
      Floats large(100'000, 1.0f);
      const auto handle = testing::start_sum(engine, "x", large);
      if (rank == i % 2) {
        finish(engine, *handle);
      } else {
        while (!handle->done()) std::this_thread::yield();
      }
      expect(large == Floats(large.size(), 2.0f), "the sum is right");
    }
  });
}

/// Moves nothing; one thread does not come back from it before the world ends.
class Stuck : public Backend {
 public:
  Stuck(const Doorbell& doorbell, std::thread::id stuck, std::atomic<bool>& begun)
      : doorbell_(doorbell), stuck_(stuck), begun_(begun) {}
  const char* name() const override { return "stuck"; }
  WorkPtr start(const Op&, const Streams&, const Streams&) override {
    return immediately([this] {
      while (std::this_thread::get_id() == stuck_) {
        begun_ = true;
        doorbell_.check_abort();
        testing::sleep_ms(1);
      }
    });
  }
  int track_of(int32_t) const override { return 0; }
  WorkPtr add_set(int32_t, const std::vector<int>&) override { return nullptr; }
  WorkPtr remove_set(int32_t) override { return nullptr; }

 private:
  const Doorbell& doorbell_;
  std::thread::id stuck_;
  std::atomic<bool>& begun_;
};

TEST_CASE("nonsense in a ring ends the world although its reader is busy in an operation") {
  const std::shared_ptr<Region> region = Region::anonymous(2);
  std::atomic<bool> begun{false};
  testing::run_threads(
      2,
      [&](int rank) {
        const auto stuck = rank == 0 ? std::this_thread::get_id() : std::thread::id();
        const auto make = [&](Endpoint& endpoint, const HostMap&, const MakeNetwork&) {
          return std::make_unique<Stuck>(endpoint.doorbell, stuck, begun);
        };
        Engine engine(rank, HostMap::single(2), region, {}, {}, testing::quick_options(), make);
        Floats value(10, 1.0f);
        if (rank == 0) {
          // Now and then the engine's own thread is faster, and comes back.
          const Error error = testing::error_of([&] {
            for (;;) testing::sum(engine, "", value);
          });
          expect(contains(error.what(), "unknown control message"), error.what());
          return;
        }
        while (!begun) {
          const auto handle = testing::start_sum(engine, "", value);
          while (!handle->done() && !begun) testing::sleep_ms(1);
        }
        std::string nonsense;
        append_frame(nonsense, "?");
        region->up(1, RingEnd::kWrites).write(nonsense);
        const Error error = testing::error_of([&] { testing::sum(engine, "", value); });
        expect(error.code == ErrorCode::kPeerLost, error.what());
      },
      [&](int r) { Doorbell(region, r, SpinPolicy{}).abort(r); });
}

TEST_CASE("waiting may be given up and taken up again") {
  std::atomic<bool> gave_up{false};
  run_engines(2, [&](Engine& engine, int rank) {
    Floats value(10, 1.0f);
    while (rank == 1 && !gave_up) testing::sleep_ms(1);
    const auto handle = testing::start_sum(engine, "x", value);
    if (rank == 0) expect(!engine.wait(*handle, now_ns() + 1'000'000), "the peer is late");
    gave_up = true;
    expect(engine.wait(*handle), "it completes at last");
    expect(value[0] == 2.0f, "and is right");
  });
}

// ---- Process sets and join ----

TEST_CASE("process sets are added, used beside one another and removed") {
  run_engines(4, [](Engine& engine, int rank) {
    for (int round = 0; round < 3; ++round) {
      const int32_t even = testing::add_set_of(engine, {0, 2});
      const int32_t odd = testing::add_set_of(engine, {1, 3});
      const int32_t last = testing::add_set_of(engine, {2, 3});
      const int32_t own = rank % 2 == 0 ? even : odd;
      for (int i = 0; i < 20; ++i) {
        Floats values(50 * static_cast<size_t>(i), static_cast<float>(rank));
        testing::sum(engine, "x", values, own);
        expect(values == Floats(values.size(), rank % 2 == 0 ? 2.0f : 4.0f), "of the own set");
        if (rank < 2) continue;
        Floats more(10, static_cast<float>(rank));
        testing::sum(engine, "", more, last);
        expect(more == Floats(10, 5.0f), "of the overlapping set");
      }
      const auto stranger = [&] {
        Floats none(1);
        testing::sum(engine, "y", none, rank % 2 == 0 ? odd : even);
      };
      expect(testing::error_of(stranger).code == ErrorCode::kInvalid, "members only");
      for (const int32_t set : {even, odd, last}) finished(engine, testing::remove_set(set));
      expect(engine.process_sets().size() == 1, "all are removed");
    }
  });
}

TEST_CASE("a rank that joined contributes zeros until all have joined") {
  run_engines(3, [](Engine& engine, int rank) {
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i <= rank; ++i) {
        Floats values(20'000, 1.0f);
        testing::sum(engine, round == 0 ? "x" : "", values);
        expect(values == Floats(values.size(), static_cast<float>(3 - i)), "who is left counts");
      }
      expect(finished(engine, testing::join_of())->value == 2, "the last one is named");
    }
  });
}

}  // namespace
}  // namespace sirtaki
