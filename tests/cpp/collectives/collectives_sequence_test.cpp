#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/single.h"
#include "base/error.h"
#include "collective_case.h"
#include "doctest/doctest.h"

// Many collectives one after the other: slots and counters are used again and again.
namespace sirtaki {
namespace {

using testing::Bytes;
using testing::Case;
using testing::CaseMaker;
using testing::expect;
using testing::Member;
using testing::op_of;

constexpr std::array kDtypes = {Dtype::kU8, Dtype::kI64, Dtype::kBF16, Dtype::kF32};
constexpr int kRounds = testing::kSanitized ? 60 : 300;

Case any_case(std::minstd_rand& random, int members) {
  Op op;
  op.kind = testing::kDataKinds[random() % std::size(testing::kDataKinds)];
  op.dtype = kDtypes[random() % kDtypes.size()];
  op.root = static_cast<int>(random() % static_cast<uint32_t>(members));
  constexpr std::array<size_t, 5> kCounts = {0, 1, 100, 3000, 20'000};
  return CaseMaker(op, members, kCounts[random() % kCounts.size()], random() % 1000).make();
}

Op barrier_of(int32_t set) {
  Op op;
  op.kind = Kind::kBarrier;
  op.set = set;
  return op;
}

TEST_CASE("collectives of all kinds follow one another in any order") {
  for (const int n : {2, 3, 4, 7}) {
    CAPTURE(n);
    std::minstd_rand random(static_cast<uint32_t>(n));
    std::vector<Case> cases;
    for (int i = 0; i < 40; ++i) cases.push_back(any_case(random, n));
    testing::run_members(n, testing::kSmallestChunk, [&](Member& member) {
      // The same order on all ranks.
      std::minstd_rand order(1);
      for (int round = 0; round < kRounds; ++round) {
        const Case& c = cases[order() % cases.size()];
        if (order() % 10 == 0) member.run(barrier_of(0), Streams(1), Streams(1));
        testing::run_case(member, c, static_cast<size_t>(member.rank));
      }
    });
  }
}

/// Process sets of the ranks of a world, and cases for each.
struct SetsPlan {
  std::map<int32_t, std::vector<int>> sets;
  std::map<int32_t, std::vector<Case>> cases;

  SetsPlan(int n, const std::vector<std::vector<int>>& more) {
    for (int r = 0; r < n; ++r) sets[0].push_back(r);
    for (size_t i = 0; i < more.size(); ++i) sets[static_cast<int32_t>(i) + 1] = more[i];
    std::minstd_rand random(7);
    for (const auto& [set, ranks] : sets) {
      for (int i = 0; i < 12; ++i) {
        cases[set].push_back(any_case(random, static_cast<int>(ranks.size())));
        cases[set].back().op.set = set;
      }
    }
  }

  int index(int32_t set, int rank) const {
    const std::vector<int>& ranks = sets.at(set);
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
  }
};

void run_sets(Member& member, const SetsPlan& plan, int rounds) {
  for (const auto& [set, ranks] : plan.sets) {
    if (set != 0) member.add_set(set, ranks);
  }
  std::minstd_rand order(1);
  for (int round = 0; round < rounds; ++round) {
    const auto set = static_cast<int32_t>(order() % plan.sets.size());
    const std::vector<Case>& cases = plan.cases.at(set);
    const Case& c = cases[order() % cases.size()];
    const int index = plan.index(set, member.rank);
    if (index >= 0) testing::run_case(member, c, static_cast<size_t>(index));
  }
  for (const auto& [set, ranks] : plan.sets) {
    if (set != 0) member.remove_set(set);
  }
}

TEST_CASE("overlapping process sets run collectives in any order") {
  const SetsPlan four(4, {{0, 1}, {1, 2, 3}, {2, 3}, {3}, {0, 3}});
  testing::run_members(4, testing::kSmallestChunk,
                       [&](Member& member) { run_sets(member, four, 2 * kRounds); });
  const SetsPlan seven(7, {{0, 2, 4, 6}, {1, 3, 5}, {0, 6}, {1, 2, 3, 4, 5, 6}});
  testing::run_members(7, testing::kSmallestChunk,
                       [&](Member& member) { run_sets(member, seven, kRounds); });
}

TEST_CASE("a process set's number may be used again for other ranks") {
  testing::run_members(4, testing::kSmallestChunk, [](Member& member) {
    const std::vector<std::vector<int>> rank_lists = {{0, 1}, {1, 3}, {0, 1, 2, 3}, {2}, {0, 2}};
    for (size_t round = 0; round < 20; ++round) {
      const std::vector<int>& ranks = rank_lists[round % rank_lists.size()];
      member.add_set(1, ranks);
      const auto found = std::find(ranks.begin(), ranks.end(), member.rank);
      if (found != ranks.end()) {
        std::minstd_rand random(static_cast<uint32_t>(round));
        for (int i = 0; i < 5; ++i) {
          Case c = any_case(random, static_cast<int>(ranks.size()));
          c.op.set = 1;
          testing::run_case(member, c, static_cast<size_t>(found - ranks.begin()));
        }
      }
      member.remove_set(1);
    }
  });
}

TEST_CASE("counters may pass 32 bits") {
  constexpr int kRanks = 3;
  const std::shared_ptr<Region> region = Region::anonymous(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    Counters& counters = region->set_counters(0)[r];
    counters.published.store(0xffffffff - 5);
    counters.consumed.store(0xffffffff - 7);
    counters.drained.store(0xffffffff - 9);
  }
  std::minstd_rand random(3);
  std::vector<Case> cases;
  for (int i = 0; i < 30; ++i) cases.push_back(any_case(random, kRanks));
  testing::run_threads(
      kRanks,
      [&](int r) {
        Member member(region, r, testing::kSmallestChunk);
        for (const Case& c : cases) {
          testing::run_case(member, c, static_cast<size_t>(r));
        }
      },
      [&](int r) { Doorbell(region, r, SpinPolicy{}).abort(r); });
}

// ---- Lost peers ----

TEST_CASE("a lost peer ends every collective that waits for it") {
  for (const Kind kind : testing::kDataKinds) {
    const Case c = CaseMaker(op_of(kind, Dtype::kF32), 3, 50'000, 2).make();
    std::atomic<int> failed{0};
    testing::run_members(3, testing::kSmallestChunk, [&](Member& member) {
      if (member.rank == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return member.endpoint.doorbell.abort(2);
      }
      try {
        for (;;) testing::run_case(member, c, static_cast<size_t>(member.rank));
      } catch (const PeerLost& lost) {
        expect(lost.rank == 2, "the lost rank is named");
        failed.fetch_add(1);
      }
    });
    CHECK(failed == 2);
  }
}

TEST_CASE("of several lost peers the first is named by all") {
  testing::run_members(4, testing::kSmallestChunk, [](Member& member) {
    member.endpoint.doorbell.abort(member.rank);
    int named = -1;
    try {
      member.endpoint.doorbell.check_abort();
    } catch (const PeerLost& lost) {
      named = lost.rank;
    }
    expect(named == member.endpoint.region->lost_rank(), "all name the same rank");
  });
}

}  // namespace
}  // namespace sirtaki
