#include "engine/requests/carried.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "math/codec.h"
#include "sequencer_fleet.h"
#include "virtual_hosts.h"

// Small sums among hosts that travel with the agreement.
namespace sirtaki {
namespace {

using testing::Fleet;
using testing::named;
using testing::sum_of;
using Floats = std::vector<float>;

// ---- Which ----

TEST_CASE("sums that all leaders would send to all may travel with reports") {
  const auto carried = [](const Request& request, size_t members = 2, size_t hosts = 2) {
    return carried_bytes(request, members, hosts, {});
  };
  CHECK(carried(sum_of("x", {1})) == 4);
  CHECK(carried(sum_of("x", {4096})) == 16384);
  CHECK(carried(sum_of("x", {4096}), 4, 4) == 16384);
  CHECK(carried(testing::rounding(sum_of("x", {3}))) == 6);
  CHECK(carried(sum_of("x", {4097})) == 0);
  CHECK(carried(sum_of("x", {4096}), 5, 5) == 0);
  CHECK(carried(sum_of("x", {0})) == 0);
  CHECK(carried(sum_of("x"), 2, 1) == 0);
  CHECK(carried(sum_of("x", {1}), 64, 64) == 4);
  CHECK(carried(sum_of("x", {1}), 65, 2) == 0);
  CHECK(carried(testing::launched(sum_of("x"))) == 0);
  CHECK(carried(named(Kind::kBroadcast, "x"), 16, 16) == 0);
  Request other = sum_of("x");
  other.reduce = ReduceOp::kAdasum;
  CHECK(carried(other) == 0);
  other.reduce = ReduceOp::kAverage;
  CHECK(carried(other) == 16);
  other.dtype = Dtype::kI32;
  CHECK(carried(other) == 0);
}

// ---- The bits ----

/// The sum of all members' numbers as it comes with the agreement.
testing::Bytes carried(const Request& request, const std::vector<int>& on_hosts,
                       const std::vector<testing::Bytes>& given) {
  const size_t bytes = carried_bytes(request, given.size(), on_hosts.size(), {});
  REQUIRE(bytes > 0);
  std::string numbers;
  for (const testing::Bytes& one : given)
    append_numbers(numbers, {request, {one.data()}, {}}, bytes);
  const Op op = op_of(request, given.size());
  testing::Bytes result(given[0].size());
  Segments out;
  out.add(result.data(), result.size());
  deliver_carried(op, carried_sum(op, on_hosts, numbers), out);
  return result;
}

std::vector<Request> sums_of(size_t count) {
  std::vector<Request> requests;
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    for (int reduce = 0; reduce < kReduceOpCount; ++reduce) {
      Request request = sum_of("x", {static_cast<int64_t>(count)});
      request.dtype = static_cast<Dtype>(dtype);
      request.reduce = static_cast<ReduceOp>(reduce);
      if (!is_reducible(request.dtype) || !has_reduction(request.dtype, request.reduce)) continue;
      if (carried_bytes(request, 2, 2, {}) == 0) continue;
      requests.push_back(request);
      if (!is_floating(request.dtype)) continue;
      request.scale = {0.3, 0.7};
      requests.push_back(request);
      for (int codec = 1; codec < codec_count() && request.dtype == Dtype::kF32; ++codec) {
        request.codec = static_cast<CodecId>(codec);
        if (has_reduction(request.codec, request.reduce)) requests.push_back(request);
      }
    }
  }
  return requests;
}

TEST_CASE("sums that travel with the agreement have the bits of those that do not") {
  const std::vector<std::vector<int>> layouts = {{0, 1}, {0, 1, 1, 2}, {0, 0, 1, 1}, {0, 1, 2, 3}};
  for (const std::vector<int>& layout : layouts) {
    const HostMap hosts(layout);
    std::vector<int> on_hosts;
    for (int h = 0; h < hosts.hosts(); ++h) {
      on_hosts.push_back(static_cast<int>(hosts.ranks_on(h).size()));
    }
    testing::run_on_hosts(layout, 4096, [&](testing::HostedMember& member) {
      uint32_t seed = 0;
      for (const size_t count : {size_t{1}, size_t{7}, size_t{1000}}) {
        for (const Request& request : sums_of(count)) {
          std::vector<testing::Bytes> given;
          for (size_t m = 0; m < layout.size(); ++m) {
            given.push_back(testing::numbers(request.dtype, count, ++seed));
          }
          Op op = op_of(request, layout.size());
          op.longest = given[0].size();
          Streams in(1), out(1);
          testing::Bytes result(given[0].size());
          in[0].add(given[static_cast<size_t>(member.rank)].data(), result.size());
          out[0].add(result.data(), result.size());
          member.run(op, in, out);
          testing::expect(result == carried(request, on_hosts, given),
                          std::string("equal bits of ") + name(request.reduce) + " of " +
                              name(request.dtype) + " as " + name(request.codec));
        }
      }
    });
  }
}

// ---- How they are agreed on ----

/// Two hosts of one rank that have agreed on the sum of `x` before.
struct TwoHosts : Fleet {
  explicit TwoHosts(const EngineOptions& options = {}) : Fleet(HostMap({0, 1}), options, true) {
    step();
  }
  void step() {
    for (int r = 0; r < 2; ++r) submit(r, sum_of("x"), numbers[r].data());
    settle();
  }
  const testing::Told& last(int rank) { return client(rank).batches.back().back(); }
  Floats result(int rank) {
    Floats values(last(rank).result.size() / sizeof(float));
    std::memcpy(values.data(), last(rank).result.data(), last(rank).result.size());
    return values;
  }

  std::string encoded;
  Floats numbers[2] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
};

TEST_CASE("once it is known, numbers come with reports and the sum with the agreement") {
  TwoHosts fleet;
  CHECK(fleet.last(1).result.empty());
  for (int r = 0; r < 2; ++r) CHECK(fleet.client(r).carries == 0);
  fleet.step();
  for (int r = 0; r < 2; ++r) {
    CHECK(fleet.client(r).carries == 1);
    CHECK(fleet.result(r) == Floats{11, 22, 33, 44});
  }
}

TEST_CASE("numbers of a rank on which another operation waits do not come with its report") {
  TwoHosts fleet;
  fleet.submit(0, sum_of("y"));
  fleet.step();
  CHECK(fleet.client(0).carries == 0);
  CHECK(fleet.client(1).carries == 1);
  for (int r = 0; r < 2; ++r) {
    CHECK(fleet.last(r).name() == "x");
    CHECK(fleet.last(r).result.empty());
  }
}

TEST_CASE("what has a result is run alone") {
  TwoHosts fleet;
  for (int r = 0; r < 2; ++r) {
    fleet.submit(r, sum_of("x"), fleet.numbers[r].data());
    fleet.submit(r, sum_of("y"));
    fleet.submit(r, sum_of("z"));
  }
  fleet.settle();
  const auto& batches = fleet.client(1).batches;
  REQUIRE(batches.size() == 3);
  CHECK(batches[1].size() == 1);
  CHECK_FALSE(batches[1][0].result.empty());
  CHECK(batches[2].size() == 2);
}

TEST_CASE("numbers do not count where a rank has joined, asks for something else, or forgets") {
  TwoHosts fleet;
  fleet.submit(0, sum_of("x"), fleet.numbers[0].data());
  SUBCASE("has joined") {
    fleet.submit(1, testing::join_of());
    fleet.settle();
    CHECK(fleet.last(0).response.joined);
    CHECK(fleet.last(0).result.empty());
  }
  SUBCASE("asks for something else") {
    fleet.submit(1, sum_of("x", {5}));
    fleet.settle();
    for (int r = 0; r < 2; ++r) CHECK(fleet.client(r).errors.size() == 1);
    fleet.step();
    CHECK(fleet.result(0) == Floats{11, 22, 33, 44});
  }
}

TEST_CASE("numbers count though their id is about to be forgotten") {
  EngineOptions options;
  options.cache_capacity = 1;
  TwoHosts fleet(options);
  for (int r = 0; r < 2; ++r) fleet.submit(r, sum_of("y"));  // there is no room for it
  fleet.dispatch();
  for (int r = 0; r < 2; ++r) {
    while (fleet.client(r).inbox.size() > 1) fleet.read_one(r);
  }
  for (int r = 0; r < 2; ++r) fleet.submit(r, sum_of("x"), fleet.numbers[r].data());
  fleet.settle();
  for (int r = 0; r < 2; ++r) {
    CHECK(fleet.client(r).flushes == 1);
    CHECK_FALSE(fleet.last(r).by_id);
    CHECK(fleet.result(r) == Floats{11, 22, 33, 44});
  }
  for (int again = 0; again < 2; ++again) fleet.step();
  CHECK(fleet.last(0).by_id);
}

// ---- Offers ----

TEST_CASE("with rank 0's numbers, the other of two members needs no agreement") {
  TwoHosts fleet;
  for (int round = 1; round <= 3; ++round) {
    fleet.numbers[0][0] = static_cast<float>(round);
    fleet.submit(0, sum_of("x"), fleet.numbers[0].data());
    REQUIRE(fleet.read_one(1));  // the offer
    fleet.submit(1, sum_of("x"), fleet.numbers[1].data());
    CHECK(fleet.client(1).negotiation.waiting() == 1);
    fleet.client(1).negotiation.use_offer();
    CHECK(fleet.client(1).negotiation.waiting() == 0);
    CHECK(fleet.result(1)[0] == static_cast<float>(10 + round));
    fleet.dispatch();
    CHECK(fleet.client(1).inbox.empty());
    fleet.read_all();
    CHECK(fleet.result(0) == fleet.result(1));
  }
}

TEST_CASE("a rank may be an operation ahead of rank 0") {
  TwoHosts fleet;
  fleet.submit(0, sum_of("x"), fleet.numbers[0].data());
  fleet.read_one(1);
  fleet.submit(1, sum_of("x"), fleet.numbers[1].data());
  fleet.client(1).negotiation.use_offer();
  const Floats next{50, 60, 70, 80};
  fleet.submit(1, sum_of("x"), next.data());
  fleet.settle();
  CHECK(fleet.client(1).negotiation.waiting() == 1);
  CHECK(fleet.result(0) == Floats{11, 22, 33, 44});
  fleet.submit(0, sum_of("x"), fleet.numbers[0].data());
  fleet.settle();
  for (int r = 0; r < 2; ++r) CHECK(fleet.result(r) == Floats{51, 62, 73, 84});
}

TEST_CASE("an offer that was of no use does not serve the next operation of that name") {
  TwoHosts fleet;
  fleet.submit(0, sum_of("x"), fleet.numbers[0].data());
  fleet.read_one(1);
  SUBCASE("because the numbers did not come with the report") {
    fleet.submit(1, sum_of("other"));
    fleet.submit(1, sum_of("x"), fleet.numbers[1].data());
    fleet.submit(0, sum_of("other"));
  }
  SUBCASE("because the report was of something else") { fleet.submit(1, sum_of("x", {5})); }
  SUBCASE("because the rank joined") {
    fleet.submit(1, testing::join_of());
    fleet.settle();
    fleet.submit(0, testing::join_of());
  }
  fleet.settle();
  CHECK_FALSE(fleet.client(1).negotiation.has_offer());
  fleet.numbers[0] = {5, 6, 7, 8};
  for (int again = 0; again < 2; ++again) {
    fleet.step();
    const bool carried = !fleet.last(1).result.empty();
    if (carried) CHECK(fleet.result(1) == Floats{15, 26, 37, 48});
  }
  CHECK(fleet.result(0) == Floats{15, 26, 37, 48});
}

TEST_CASE("there are no offers where a stall fails operations") {
  EngineOptions options;
  options.stall_shutdown_seconds = 60;
  TwoHosts fleet(options);
  fleet.submit(0, sum_of("x"), fleet.numbers[0].data());
  CHECK_FALSE(fleet.read_one(1));
}

TEST_CASE("offers that cannot be used are refused") {
  TwoHosts fleet;
  Writer encoded(fleet.encoded);
  sum_of("x").encode(encoded);
  const uint32_t id = fleet.client(1).negotiation.id_of(fleet.encoded);
  const auto offer = [&](int rank, const std::string& numbers) {
    fleet.client(rank).negotiation.receive(message_of(Down::kOffer, id, uint64_t{0}, numbers));
  };
  CHECK_THROWS_WITH(offer(1, std::string(12, '\1')), doctest::Contains("of no use"));
  CHECK_THROWS_WITH(offer(1, ""), doctest::Contains("of no use"));
  CHECK_THROWS_WITH(offer(0, std::string(16, '\1')), doctest::Contains("of no use"));
}

}  // namespace
}  // namespace sirtaki
