#include "engine/sequencer/sequencer.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "sequencer_fleet.h"

namespace sirtaki {
namespace {

using testing::Client;
using testing::contains;
using testing::Fleet;
using testing::named;
using testing::sum_of;
using Names = std::vector<std::string>;

EngineOptions fusing(int64_t bytes) {
  EngineOptions options;
  options.fusion_bytes = bytes;
  return options;
}

// ---- Order ----

TEST_CASE("an operation runs once all ranks have submitted it, not before") {
  Fleet fleet(3);
  fleet.submit(0, sum_of("a"));
  fleet.submit(2, sum_of("a"));
  fleet.settle();
  CHECK(fleet.client(0).batches.empty());
  fleet.submit(1, sum_of("a"));
  fleet.settle();
  for (const Client& c : fleet.clients) CHECK(c.names() == Names{"a"});
}

TEST_CASE("named operations run in one order on all ranks, whatever order they come in") {
  Fleet fleet(3, fusing(0));
  for (const char* name : {"a", "b", "c"}) fleet.submit(0, sum_of(name));
  for (const char* name : {"c", "a", "b"}) fleet.submit(1, sum_of(name));
  for (const char* name : {"b", "c", "a"}) fleet.submit(2, sum_of(name));
  fleet.settle();
  const Names order = fleet.client(0).names();
  CHECK(std::set<std::string>(order.begin(), order.end()).size() == 3);
  for (const Client& c : fleet.clients) CHECK(c.names() == order);
}

TEST_CASE("unnamed operations meet by their order of submission") {
  Fleet fleet(2, fusing(0));
  for (int64_t rows = 1; rows <= 3; ++rows) fleet.submit(0, sum_of("", {rows}));
  for (int64_t rows = 1; rows <= 3; ++rows) fleet.submit(1, sum_of("", {rows}));
  fleet.settle();
  for (const Client& c : fleet.clients) {
    REQUIRE(c.batches.size() == 3);
    for (uint64_t i = 0; i < 3; ++i) {
      CHECK(c.batches[i][0].ordinal == i);
      CHECK(c.batches[i][0].response.base.shapes[0][0] == static_cast<int64_t>(i) + 1);
    }
  }
}

TEST_CASE("unnamed operations of different kinds in the same place are a mismatch") {
  Fleet fleet(2);
  fleet.submit(0, sum_of(""));
  fleet.submit(1, named(Kind::kBroadcast, ""));
  fleet.settle();
  CHECK(contains(fleet.client(0).errors.at(0), "rank 0 has allreduce, rank 1 has broadcast"));
  fleet.submit_everywhere(sum_of(""));
  fleet.settle();
  CHECK(fleet.client(1).batches.size() == 1);
}

TEST_CASE("named and unnamed operations do not disturb one another") {
  Fleet fleet(2, fusing(0));
  fleet.submit(0, sum_of(""));
  fleet.submit(0, sum_of("a"));
  fleet.submit(1, sum_of("a"));
  fleet.submit(1, sum_of(""));
  fleet.settle();
  CHECK(fleet.client(0).names() == Names{"a", ""});
  CHECK(fleet.client(1).names() == Names{"a", ""});
}

TEST_CASE("peers are expected only while a request of theirs can complete something") {
  Fleet fleet(3);
  CHECK_FALSE(fleet.sequencer.expects_peers());
  fleet.submit(1, sum_of("a"));
  CHECK_FALSE(fleet.sequencer.expects_peers());
  fleet.submit(0, sum_of("a"));
  CHECK(fleet.sequencer.expects_peers());
  fleet.submit(2, sum_of("a"));
  CHECK_FALSE(fleet.sequencer.expects_peers());
}

// ---- Batches ----

size_t batches_of(Fleet& fleet, const std::vector<Request>& requests) {
  for (const Request& request : requests) fleet.submit_everywhere(request);
  fleet.settle();
  CHECK(fleet.client(0).names() == fleet.client(1).names());
  CHECK(fleet.client(0).names().size() == requests.size());
  return fleet.client(0).batches.size();
}

TEST_CASE("ready operations are joined up to the threshold") {
  // Each is 16 bytes.
  const std::vector<Request> five = {sum_of("a"), sum_of("b"), sum_of("c"), sum_of("d"),
                                     sum_of("e")};
  Fleet none(2, fusing(0));
  CHECK(batches_of(none, five) == 5);
  Fleet two(2, fusing(32));
  CHECK(batches_of(two, five) == 3);
  Fleet all(2, fusing(1 << 20));
  CHECK(batches_of(all, five) == 1);
}

TEST_CASE("an operation larger than the threshold runs alone") {
  Fleet fleet(2, fusing(100));
  CHECK(batches_of(fleet, {sum_of("large", {1000}), sum_of("a"), sum_of("b")}) == 2);
}

TEST_CASE("operations that differ are not joined") {
  const Request base = sum_of("a");
  std::vector<Request> others(6, sum_of("b"));
  others[0].dtype = Dtype::kF64;
  others[1].reduce = ReduceOp::kMax;
  others[2].scale.pre = 2.0;
  others[3].scale.post = 2.0;
  others[4].kind = Kind::kReducescatter;
  others[5].codec = CodecId::kBF16;
  for (const Request& other : others) {
    Fleet fleet(2);
    CHECK(batches_of(fleet, {base, other}) == 2);
  }
}

TEST_CASE("broadcasts are joined if they have one root") {
  Request other_root = named(Kind::kBroadcast, "c");
  other_root.root = 1;
  Fleet fleet(2);
  CHECK(batches_of(fleet,
                   {named(Kind::kBroadcast, "a"), named(Kind::kBroadcast, "b"), other_root}) == 2);
}

TEST_CASE("operations in between do not keep two from being joined") {
  Fleet fleet(2);
  CHECK(batches_of(fleet, {sum_of("a"), named(Kind::kBroadcast, "x"), sum_of("b")}) == 2);
  CHECK(fleet.client(0).names() == Names{"a", "b", "x"});
}

TEST_CASE("a group of tensors is one operation") {
  Fleet fleet(2);
  Request group = sum_of("g");
  group.shapes = {{2}, {3, 4}, {}};
  fleet.submit_everywhere(group);
  fleet.settle();
  CHECK(fleet.client(0).batches.at(0).at(0).response.base.shapes == group.shapes);
}

// ---- Sizes ----

TEST_CASE("an allgather tells everybody the rows of every rank and tensor") {
  Fleet fleet(3);
  for (int r = 0; r < 3; ++r) {
    Request request = named(Kind::kAllgather, "g");
    request.shapes = {{r, 5}, {10 * r}};
    fleet.submit(2 - r, request);
  }
  fleet.settle();
  for (const Client& c : fleet.clients) {
    CHECK(c.batches.at(0).at(0).response.sizes == std::vector<int64_t>{2, 1, 0, 20, 10, 0});
  }
}

TEST_CASE("an alltoall that the caller launches tells everybody who sends how many rows to whom") {
  Fleet fleet(2);
  for (int r = 0; r < 2; ++r) {
    Request request = testing::launched(named(Kind::kAlltoall, "t", {10, 3}));
    request.splits = {r + 1, r + 5};
    fleet.submit(r, request);
  }
  fleet.settle();
  CHECK(fleet.client(1).batches.at(0).at(0).response.sizes == std::vector<int64_t>{1, 5, 2, 6});
}

TEST_CASE("what is said of an alltoall does not grow with its members") {
  const auto bytes_said = [](int ranks) {
    Fleet fleet(ranks);
    Request request = named(Kind::kAlltoall, "t", {ranks, 3});
    request.splits.assign(static_cast<size_t>(ranks), 1);
    size_t most = 0;
    for (int r = 0; r < ranks; ++r) {
      const std::string message = fleet.client(r).submit(request);
      most = std::max(most, message.size());
      fleet.sequencer.receive(r, message, 0);
    }
    fleet.dispatch();
    most = std::max(most, fleet.client(0).inbox.front().size());
    fleet.settle();
    CHECK(fleet.client(0).batches.at(0).at(0).response.sizes.empty());
    return most;
  };
  const size_t few = bytes_said(2);
  CHECK(few > 0);
  CHECK(bytes_said(200) == few);
}

// ---- Shutdown ----

TEST_CASE("what is ready runs before the shutdown, and nothing after it") {
  EngineOptions options;
  options.stall_shutdown_seconds = 30;
  Fleet fleet(3, options);
  fleet.submit_everywhere(sum_of("ready"));
  fleet.submit(0, sum_of("incomplete"));
  fleet.leave(1);
  fleet.submit(1, sum_of("incomplete"));
  fleet.submit(2, sum_of("incomplete"));
  fleet.submit_everywhere(sum_of("late"));
  fleet.leave(2);
  fleet.settle();
  for (const Client& c : fleet.clients) {
    CHECK(c.names() == Names{"ready"});
    CHECK(c.left == std::vector<int>{1});
  }
  fleet.watch(3600);
  fleet.settle();
  for (const Client& c : fleet.clients) CHECK(c.errors.empty());
}

// ---- Many ranks ----

TEST_CASE("256 ranks agree on one order whatever order each submits in") {
  constexpr int kRanks = 256;
  Fleet fleet(kRanks, fusing(256));
  std::mt19937 random(1);
  for (int step = 0; step < 3; ++step) {
    std::vector<Request> requests;
    for (int i = 0; i < 30; ++i) requests.push_back(sum_of("grad" + std::to_string(i), {i}));
    std::vector<std::pair<int, Request>> events;
    for (int r = 0; r < kRanks; ++r) {
      std::shuffle(requests.begin(), requests.end(), random);
      for (const Request& request : requests) events.emplace_back(r, request);
    }
    // Ranks submit at different times, each in its own order.
    std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
      return (a.first * 7919) % kRanks < (b.first * 7919) % kRanks;
    });
    for (const auto& [rank, request] : events) {
      fleet.submit(rank, request);
      if (random() % 64 == 0) fleet.dispatch();
    }
    fleet.settle();
  }
  const Names order = fleet.client(0).names();
  CHECK(order.size() == 90);
  for (const Client& c : fleet.clients) {
    REQUIRE(c.names() == order);
    REQUIRE(c.negotiation.waiting() == 0);
    // After the first step everybody speaks in short ids.
    REQUIRE(c.reports_by_id == 60);
  }
}

}  // namespace
}  // namespace sirtaki
