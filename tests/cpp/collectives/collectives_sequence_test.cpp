#include <atomic>
#include <memory>
#include <random>
#include <vector>

#include "backends/single.h"
#include "base/error.h"
#include "case_sequences.h"
#include "collective_case.h"
#include "doctest/doctest.h"

// Many collectives one after the other: slots and counters are used again and again.
namespace sirtaki {
namespace {

using testing::Case;
using testing::CaseMaker;
using testing::expect;
using testing::Member;
using testing::op_of;
using testing::SetsPlan;

constexpr int kRounds = testing::kSanitized ? 60 : 300;

const testing::Choices kChoices{{Dtype::kU8, Dtype::kI64, Dtype::kBF16, Dtype::kF32},
                                {0, 1, 100, 3000, 20'000}};

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
    for (int i = 0; i < 40; ++i) cases.push_back(kChoices.any(random, n));
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

TEST_CASE("overlapping process sets run collectives in any order") {
  const SetsPlan four(4, {{0, 1}, {1, 2, 3}, {2, 3}, {3}, {0, 3}}, kChoices);
  testing::run_members(4, testing::kSmallestChunk,
                       [&](Member& member) { four.run(member, 2 * kRounds); });
  const SetsPlan seven(7, {{0, 2, 4, 6}, {1, 3, 5}, {0, 6}, {1, 2, 3, 4, 5, 6}}, kChoices);
  testing::run_members(7, testing::kSmallestChunk,
                       [&](Member& member) { seven.run(member, kRounds); });
}

TEST_CASE("a process set's number may be used again for other ranks") {
  testing::run_members(4, testing::kSmallestChunk,
                       [](Member& member) { testing::use_a_number_again(member, kChoices); });
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
  for (int i = 0; i < 30; ++i) cases.push_back(kChoices.any(random, kRanks));
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
