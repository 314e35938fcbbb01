#include "engine/observe/tally.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <memory>

#include "engine/observe/exposed.h"
#include "requests.h"
#include "transport/memory/region.h"

namespace sirtaki {
namespace {

constexpr int64_t kMs = 1'000'000;

struct Counted {
  std::shared_ptr<Region> region = Region::anonymous(1);
  RankTotals& totals = region->rank(0).totals;
  Tally tally{totals};

  /// Each of them a millisecond after the one before.
  void submit(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      now_ns += kMs;
      tally.submitted(testing::named(Kind::kAllreduce, name, {1}), 4, now_ns);
    }
  }
  uint64_t steps() const {
    uint64_t all = 0;
    for (const auto& bucket : totals.steps) all += bucket;
    return all;
  }

  int64_t now_ns = kMs;
};

TEST_CASE("operations, bytes and errors are counted by kind") {
  Counted one;
  one.submit({"a", "b"});
  one.tally.submitted(testing::named(Kind::kBroadcast, "c", {1}), 100, one.now_ns);
  one.tally.failed(static_cast<size_t>(Kind::kBroadcast));
  const auto& sums = one.totals.kinds[static_cast<size_t>(Kind::kAllreduce)];
  const auto& copies = one.totals.kinds[static_cast<size_t>(Kind::kBroadcast)];
  CHECK(sums.operations == 2);
  CHECK(sums.bytes == 8);
  CHECK(sums.errors == 0);
  CHECK(copies.operations == 1);
  CHECK(copies.bytes == 100);
  CHECK(copies.errors == 1);
}

TEST_CASE("a step ends where a name returns, after what came once") {
  Counted one;
  one.submit({"weights", "state"});
  for (int i = 0; i < 10; ++i) one.submit({"a", "b", "c", "d", "e"});
  // The first ones are over before a name that returns is found.
  CHECK(one.steps() == 8);
  CHECK(one.totals.steps_ns == 8 * 5 * kMs);
  CHECK(one.totals.steps[0] == 8);
}

TEST_CASE("operations without a name end no step") {
  Counted one;
  one.submit({"", "", ""});
  CHECK(one.steps() == 0);
}

TEST_CASE("what returns before the step ends is a shorter step") {
  Counted one;
  one.submit({"a", "b", "a", "b"});
  const uint64_t before = one.steps();
  one.submit({"x", "y", "x", "y", "x", "y", "x", "y"});
  CHECK(one.steps() == before + 3);
  one.submit({"a", "b", "a", "b", "a"});
  CHECK(one.steps() >= before + 4);
}

TEST_CASE("a step's time is counted under the least bound that it keeps") {
  Counted one;
  for (const int64_t ms : {0, 10, 11, 100, 1'000'000}) {
    one.now_ns += ms * kMs - kMs;
    one.submit({"a"});
  }
  CHECK(one.totals.steps[0] == 1);
  CHECK(one.totals.steps[1] == 1);
  CHECK(one.totals.steps[3] == 1);
  CHECK(one.totals.steps.back() == 1);
}

TEST_CASE("waits for other ranks that overlap count once") {
  Counted one;
  one.tally.waits(1000 * kMs);
  CHECK(waited_seconds(one.totals, 1500 * kMs) == doctest::Approx(0.5));
  one.tally.waits(2000 * kMs);
  one.tally.heard(3000 * kMs);
  one.tally.heard(4000 * kMs);
  one.tally.waits(9000 * kMs);
  CHECK(waited_seconds(one.totals, 9000 * kMs) == doctest::Approx(3.0));
}

}  // namespace
}  // namespace sirtaki
