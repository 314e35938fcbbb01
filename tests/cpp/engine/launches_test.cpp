#include <doctest/doctest.h>

#include <array>
#include <future>
#include <thread>

#include "engines.h"

// Operations of accelerators, which the caller launches.
namespace sirtaki {
namespace {

using testing::expect;
using testing::finish;
using testing::in_set;
using testing::launched;
using testing::run_engines;
using testing::sum_of;

std::shared_ptr<Handle> start(Engine& engine, Request request, int64_t number) {
  Submission submission{launched(std::move(request)), {nullptr}, {nullptr}};
  submission.number = number;
  return engine.submit(std::move(submission));
}

TEST_CASE("what is launched comes in one order on all ranks, whatever their process sets") {
  constexpr int kRounds = 20;
  std::array<std::vector<int64_t>, 3> orders;
  run_engines(3, [&](Engine& engine, int rank) {
    const int32_t pair = testing::add_set_of(engine, {0, 2});
    std::vector<std::shared_ptr<Handle>> handles;
    for (int i = 0; i < kRounds; ++i) {
      // Ranks differ in what they submit first.
      const int64_t number = rank == 0 ? i : kRounds - 1 - i;
      const std::string name = std::to_string(number);
      if (rank != 1) handles.push_back(start(engine, in_set(sum_of(name), pair), number));
      handles.push_back(start(engine, sum_of(name), kRounds + number));
    }
    for (const auto& handle : handles) finish(engine, *handle);
    const size_t expected = static_cast<size_t>(kRounds) * (rank == 1 ? 1 : 2);
    auto& order = orders[static_cast<size_t>(rank)];
    while (order.size() < expected) {
      for (const Launch& launch : engine.launches()->take()) order.push_back(launch.number);
    }
  });
  CHECK(orders[0] == orders[2]);
  std::erase_if(orders[0], [](int64_t number) { return number < kRounds; });
  CHECK(orders[0] == orders[1]);
}

TEST_CASE("a rank that has joined is told what it takes part in") {
  run_engines(2, [](Engine& engine, int rank) {
    Submission join{launched(testing::join_of()), {}, {}};
    if (rank == 0) finish(engine, *start(engine, sum_of("x", {2, 3}), 7));
    const auto joined = engine.submit(std::move(join));
    const Launches::Batch batch = engine.launches()->take();
    expect(batch.size() == 1, "there is one operation");
    expect(batch[0].number == (rank == 0 ? 7 : Launch::kJoined), "its number is the caller's");
    expect(batch[0].response->base.shapes == std::vector<Shape>{{2, 3}}, "its shape is known");
    expect(batch[0].ranks == std::vector<int>{0, 1}, "its members are known");
    finish(engine, *joined);
  });
}

TEST_CASE("who waits for launches hears of the end") {
  std::array<std::future<size_t>, 2> left;
  run_engines(2, [&](Engine& engine, int rank) {
    const std::shared_ptr<Launches> launches = engine.launches();
    left[static_cast<size_t>(rank)] =
        std::async(std::launch::async, [launches] { return launches->take().size(); });
  });
  for (auto& taken : left) CHECK(taken.get() == 0);
}

TEST_CASE("who waits for launches hears why the world was lost") {
  Launches launches([](uint64_t) {});
  launches.add({{3, nullptr, {}}});
  launches.close(Error(ErrorCode::kPeerLost, "rank 1 is lost"));
  launches.close();
  CHECK_THROWS_WITH(launches.take(), "rank 1 is lost");
  CHECK_THROWS_WITH(launches.await_end(), "rank 1 is lost");
}

}  // namespace
}  // namespace sirtaki
