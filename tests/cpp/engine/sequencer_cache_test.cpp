#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "sequencer_fleet.h"

// Operations known by a short id.
namespace sirtaki {
namespace {

using testing::Client;
using testing::Fleet;
using testing::named;
using testing::rounding;
using testing::sum_of;

EngineOptions caching(int64_t capacity) {
  EngineOptions options;
  options.cache_capacity = capacity;
  options.fusion_bytes = 0;
  return options;
}

TEST_CASE("an operation is told in full once and by id from then on") {
  Fleet fleet(2, caching(10));
  for (int step = 0; step < 3; ++step) {
    fleet.submit_everywhere(sum_of("a"));
    fleet.settle();
  }
  for (const Client& c : fleet.clients) {
    CHECK(c.reports_by_id == 2);
    CHECK_FALSE(c.batches[0][0].by_id);
    CHECK(c.batches[1][0].by_id);
    CHECK(c.batches[2][0].by_id);
  }
}

TEST_CASE("unnamed operations of one signature share an id") {
  Fleet fleet(2, caching(10));
  for (int step = 0; step < 3; ++step) {
    fleet.submit_everywhere(sum_of(""));
    fleet.settle();
  }
  CHECK(fleet.client(0).reports_by_id == 2);
  CHECK(fleet.client(0).batches[2][0].ordinal == 2);
}

TEST_CASE("an operation that changes on all ranks is told in full again") {
  Fleet fleet(2, caching(10));
  for (const int64_t rows : {4, 5, 4}) {
    fleet.submit_everywhere(sum_of("a", {rows}));
    fleet.settle();
  }
  const auto& batches = fleet.client(1).batches;
  CHECK_FALSE(batches[1][0].by_id);
  CHECK(batches[1][0].response.base.shapes[0] == Shape{5});
  CHECK(batches[2][0].response.base.shapes[0] == Shape{4});
}

TEST_CASE("an operation that changes its codec is told in full again") {
  Fleet fleet(2, caching(10));
  for (const Request& request : {sum_of("a"), rounding(sum_of("a")), rounding(sum_of("a"))}) {
    fleet.submit_everywhere(request);
    fleet.settle();
  }
  const auto& batches = fleet.client(1).batches;
  CHECK_FALSE(batches[1][0].by_id);
  CHECK(batches[1][0].response.base.codec == CodecId::kBF16);
  CHECK(batches[2][0].by_id);
  CHECK(batches[2][0].response.base.codec == CodecId::kBF16);
}

TEST_CASE("an operation that changes on one rank alone is a mismatch, known or not") {
  for (const int changed : {0, 1}) {
    Fleet fleet(2, caching(10));
    fleet.submit_everywhere(sum_of("a", {4}));
    fleet.settle();
    fleet.submit(changed, sum_of("a", {5}));
    fleet.submit(1 - changed, sum_of("a", {4}));
    fleet.settle();
    for (const Client& c : fleet.clients) {
      REQUIRE(c.errors.size() == 1);
      CHECK(c.errors[0].find("[5]") != std::string::npos);
    }
    fleet.submit_everywhere(sum_of("a", {4}));
    fleet.settle();
    CHECK(fleet.client(0).batches.size() == 2);
  }
}

Request rows(int64_t count) { return named(Kind::kAllgather, "g", {count, 2}); }

TEST_CASE("ranks may change the rows of an allgather independently of one another") {
  Fleet fleet(2, caching(100));
  std::minstd_rand random(1);
  for (int step = 0; step < 60; ++step) {
    const auto mine = static_cast<int64_t>(random() % 3);
    const auto theirs = static_cast<int64_t>(random() % 3);
    const int first = static_cast<int>(random() % 2);
    fleet.submit(first, rows(first == 0 ? mine : theirs));
    fleet.submit(1 - first, rows(first == 0 ? theirs : mine));
    fleet.settle();
    for (const Client& c : fleet.clients) {
      REQUIRE(c.errors.empty());
      REQUIRE(c.batches.back().at(0).response.sizes == std::vector<int64_t>{mine, theirs});
    }
  }
  CHECK(fleet.client(0).reports_by_id > 40);
}

TEST_CASE("an alltoall with other rows and splits is the same operation") {
  Fleet fleet(2, caching(10));
  for (int64_t step = 0; step < 4; ++step) {
    for (int64_t r = 0; r < 2; ++r) {
      Request request = named(Kind::kAlltoall, "a", {10 * step + r, 3});
      request.splits = {step, r};
      fleet.submit(static_cast<int>(r), request);
    }
    fleet.settle();
  }
  for (const Client& c : fleet.clients) {
    CHECK(c.errors.empty());
    CHECK(c.reports_by_id == 3);
    CHECK(c.batches.at(3).at(0).by_id);
  }
}

TEST_CASE("a launched alltoall with a large table of splits is told in full each time") {
  constexpr int kRanks = 65;  // 65 * 65 numbers
  Fleet fleet(kRanks, caching(10));
  Request request = testing::launched(named(Kind::kAlltoall, "a", {kRanks}));
  request.splits.assign(kRanks, 1);
  for (int step = 0; step < 2; ++step) {
    fleet.submit_everywhere(request);
    fleet.settle();
  }
  CHECK_FALSE(fleet.client(0).batches[1][0].by_id);
}

TEST_CASE("without a cache everything is told in full") {
  Fleet fleet(2, caching(0));
  for (int step = 0; step < 3; ++step) {
    fleet.submit_everywhere(sum_of("a"));
    fleet.settle();
  }
  CHECK(fleet.client(0).reports_by_id == 0);
  CHECK(fleet.client(0).batches.size() == 3);
}

TEST_CASE("a full cache is emptied on all ranks and filled again") {
  Fleet fleet(2, caching(2));
  for (int step = 0; step < 4; ++step) {
    for (const char* name : {"a", "b", "c"}) {
      fleet.submit_everywhere(sum_of(name));
      fleet.settle();
    }
  }
  for (const Client& c : fleet.clients) {
    CHECK(c.flushes > 0);
    CHECK(c.names().size() == 12);
    CHECK(c.negotiation.known() <= 2);
  }
}

TEST_CASE("the batch that fills the cache is understood by all ranks") {
  EngineOptions options = caching(2);
  options.fusion_bytes = 1 << 20;
  Fleet fleet(2, options);
  // "b" is known, "d" finds no room: the batch names an id that is forgotten right after it.
  fleet.submit_everywhere(sum_of("a"));
  fleet.submit_everywhere(sum_of("b"));
  fleet.settle();
  for (const char* name : {"b", "c", "d"}) fleet.submit_everywhere(sum_of(name));
  fleet.settle();
  for (int step = 0; step < 3; ++step) {
    for (const char* name : {"a", "b", "c", "d"}) fleet.submit_everywhere(sum_of(name));
    fleet.settle();
  }
  for (const Client& c : fleet.clients) {
    CHECK(c.negotiation.waiting() == 0);
    CHECK(c.names().size() == 2 + 3 + 12);
  }
}

TEST_CASE("an id that was forgotten meanwhile is still understood when it arrives") {
  Fleet fleet(2, caching(2));
  for (const char* name : {"a", "b"}) {
    fleet.submit_everywhere(sum_of(name));
    fleet.settle();
  }
  fleet.submit_everywhere(sum_of("c"));  // finds no room
  fleet.dispatch();
  while (fleet.read_one(0)) {
  }
  // Rank 1 has not read that ids are forgotten: it reports by id, rank 0 in full.
  fleet.submit(1, sum_of("a"));
  fleet.submit(0, sum_of("a"));
  fleet.submit(1, sum_of("b"));  // by id, and still incomplete when all have forgotten it
  fleet.read_all();
  fleet.submit(0, sum_of("b"));
  fleet.settle();
  CHECK(fleet.client(1).reports_by_id == 2);
  for (const Client& c : fleet.clients) {
    CHECK(c.negotiation.waiting() == 0);
    CHECK(c.errors.empty());
    CHECK(c.names().size() == 5);
  }
}

/// What a random rank does next.
void random_step(Fleet& fleet, std::mt19937& random, int ranks, std::vector<int>& next) {
  const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
  auto& position = next[static_cast<size_t>(rank)];
  Client& client = fleet.client(rank);
  switch (random() % 4) {
    case 0:
      fleet.read_one(rank);
      break;
    case 1:
      fleet.sequencer.dispatch(0);
      break;
    default: {
      // Operation number i is the same on all ranks; a name in flight is not used again.
      std::mt19937 choice(static_cast<unsigned>(position));
      const std::string name = "t" + std::to_string(choice() % 6);
      const bool gather = choice() % 3 == 0;
      const auto own_rows = static_cast<int64_t>(random() % 3);
      const Request request = gather ? named(Kind::kAllgather, "g" + name, {own_rows})
                                     : sum_of(name, {static_cast<int64_t>(choice() % 2)});
      if (client.negotiation.waits_for(match_key(request, 0))) {
        fleet.read_one(rank);
        return;
      }
      fleet.submit(rank, request);
      ++position;
    }
  }
}

TEST_CASE("a tiny cache stands any order of messages") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    EngineOptions options = caching(1 + seed % 3);
    options.fusion_bytes = seed % 2 == 0 ? 0 : 64;
    const int ranks = 2 + static_cast<int>(seed % 3);
    Fleet fleet(ranks, options);
    std::vector<int> next(static_cast<size_t>(ranks));
    constexpr int kOperations = 150;
    while (*std::min_element(next.begin(), next.end()) < kOperations) {
      random_step(fleet, random, ranks, next);
      // Nobody runs ahead for ever.
      for (int r = 0; r < ranks; ++r) {
        if (next[static_cast<size_t>(r)] < kOperations) continue;
        fleet.settle();
      }
    }
    fleet.settle();
    const size_t least = static_cast<size_t>(*std::min_element(next.begin(), next.end()));
    for (const Client& c : fleet.clients) {
      REQUIRE(c.errors.empty());
      REQUIRE(c.names() == fleet.client(0).names());
      REQUIRE(c.names().size() >= least);
    }
  }
}

}  // namespace
}  // namespace sirtaki
