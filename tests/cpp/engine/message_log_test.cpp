#include "engine/observe/message_log.h"

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engines.h"

// Messages as traces have them, and for how long threads are blocked in calls.
namespace sirtaki {
namespace {

using testing::check;
using testing::expect;
using testing::run_engines;

Transfer transfer(bool sends, int peer, int64_t tag, std::vector<std::byte>& data) {
  return {sends, peer, 0, tag, data.data(), data.size()};
}

std::vector<Recorded> drained(Engine& engine) {
  std::vector<Recorded> found;
  for (const auto& words : engine.recorder().drain(0, {}).ended) {
    if (auto one = decode(words, engine.size()); one && one->is_message()) found.push_back(*one);
  }
  return found;
}

/// What both ends of a message from rank 0 know of it.
struct Ends {
  Recorded sent, received;
};

/// Rank 0 sends messages of these sizes, with tags from 0 on; rank 1 wants the last one first. By
/// tag.
std::map<std::string, Ends> exchange(const std::vector<size_t>& sizes) {
  std::vector<Recorded> of_rank[2];
  run_engines(2, [&](Engine& engine, int rank) {
    std::vector<std::vector<std::byte>> data;
    for (const size_t size : sizes) data.emplace_back(size);
    std::vector<std::byte> one(1);
    check(*engine.start_and_wait(transfer(rank == 0, 1 - rank, 1000, one)));  // not recorded
    engine.recorder().be_precise(true);
    std::vector<std::shared_ptr<Handle>> handles;
    const auto count = static_cast<int64_t>(sizes.size());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t tag = rank == 0 ? i : count - 1 - i;
      const int peer = rank == 0 ? 1 : kAnySource;
      auto& memory = data[static_cast<size_t>(tag)];
      handles.push_back(engine.start(transfer(rank == 0, peer, tag, memory)));
    }
    for (const auto& handle : handles) testing::finish(engine, *handle);
    engine.recorder().be_precise(false);
    check(*engine.start_and_wait(transfer(rank == 0, 1 - rank, 2000, one)));
    of_rank[rank] = drained(engine);
    testing::sum(engine, "end", *std::make_unique<std::vector<float>>(1));
  });
  std::map<std::string, Ends> found;
  for (const Recorded& one : of_rank[0]) found[one.tensor].sent = one;
  for (const Recorded& one : of_rank[1]) found[one.tensor].received = one;
  return found;
}

TEST_CASE("messages are recorded at both ends, with the number that both count") {
  // Small ones go at once, large ones when they are wanted.
  const std::vector<size_t> sizes = {8, 300'000, 0, 70'000, 16};
  const auto found = exchange(sizes);
  REQUIRE(found.size() == sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Ends& ends = found.at("tag " + std::to_string(i));
    CHECK(ends.sent.operation == std::string("send"));
    CHECK(ends.received.operation == std::string("receive"));
    CHECK(ends.sent.awaited.rank == 1);
    CHECK(ends.received.awaited.rank == 0);
    CHECK(ends.sent.sequence == i + 2);  // one went before
    CHECK(ends.received.sequence == i + 2);
    for (const Recorded& one : {ends.sent, ends.received}) {
      CHECK(one.bytes == sizes[i]);
      CHECK(one.stage == Stage::kDone);
      CHECK(one.submitted_ns > 0);
      CHECK(one.submitted_ns <= one.ended_ns);
    }
    CHECK(ends.sent.submitted_ns <= ends.received.ended_ns);
  }
}

TEST_CASE("a receive that is given up is recorded as failed") {
  run_engines(1, [](Engine& engine, int) {
    engine.recorder().be_precise(true);
    std::vector<std::byte> data(1);
    const auto handle = engine.start(transfer(false, 0, 3, data));
    engine.withdraw(handle);
    const auto found = drained(engine);
    expect(found.size() == 1, "it has ended");
    expect(found[0].stage == Stage::kFailed, "it has failed");
    expect(drained(engine).empty(), "it is taken once");
  });
}

TEST_CASE("messages that nobody takes are counted where there is no more room") {
  MessageLog log;
  for (size_t i = 0; i < (1 << 16) + 3; ++i) log.ended({}, {}, true);
  std::vector<FlightRecord::Words> found;
  CHECK(log.take(found) == 3);
  CHECK(found.size() == 1 << 16);
  CHECK(log.take(found) == 0);
}

TEST_CASE("only what a call blocks for is exposed") {
  constexpr auto kTime = std::chrono::milliseconds(300);
  run_engines(2, [&](Engine& engine, int rank) {
    const auto own = [&] { return engine.snapshot(1)[static_cast<size_t>(rank)].state; };
    std::vector<float> values(1);
    if (rank == 1) std::this_thread::sleep_for(kTime);
    testing::finish(engine, *testing::start_sum(engine, "late", values));
    const RankState before = own();
    expect(rank == 1 || before.exposed_seconds > 0.2, "rank 0 was blocked until rank 1 came");
    const auto handle = testing::start_sum(engine, "hidden", values);
    std::this_thread::sleep_for(kTime);
    expect(own().exposed_seconds == before.exposed_seconds, "it went on beside the computation");
    expect(own().calls == before.calls, "nobody has asked for a result");
    testing::finish(engine, *handle);
    expect(own().calls > before.calls, "somebody has");
    testing::sum(engine, "end", values);  // of who has left nothing is known
  });
}

TEST_CASE("a call that blocks now counts until now") {
  run_engines(2, [](Engine& engine, int rank) {
    std::vector<float> values(1);
    if (rank == 0) return testing::finish(engine, *testing::start_sum(engine, "late", values));
    double exposed = 0;
    while (exposed < 0.1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      exposed = engine.snapshot(1)[0].state.exposed_seconds;
    }
    testing::finish(engine, *testing::start_sum(engine, "late", values));
  });
}

}  // namespace
}  // namespace sirtaki
