#include "engine/sequencer/roster.h"

#include "base/error.h"
#include "doctest/doctest.h"

namespace sirtaki {
namespace {

std::vector<int> ranks_of(const Roster& roster, Stretch who) {
  std::vector<int> ranks;
  for (int place = who.begin; place < who.end; ++place) ranks.push_back(roster.rank_at(place));
  return ranks;
}

TEST_CASE("the members of consecutive hosts follow one another, however ranks are dealt out") {
  const HostMap hosts({0, 1, 2, 0, 1, 2});
  const Roster roster(hosts, {0, 1, 2, 4, 5});
  CHECK(ranks_of(roster, roster.all()) == std::vector<int>{0, 1, 4, 2, 5});
  CHECK(ranks_of(roster, roster.of_hosts({1, 3})) == std::vector<int>{1, 4, 2, 5});
  CHECK(ranks_of(roster, roster.of_rank(5)) == std::vector<int>{5});
  CHECK(roster.of_rank(3).size() == 0);
  CHECK_THROWS_AS(roster.of_hosts({1, 4}), Error);
  CHECK_THROWS_AS(roster.of_hosts({-1, 1}), Error);
  CHECK_THROWS_AS(roster.of_hosts({2, 1}), Error);
}

TEST_CASE("members count together only while they have counted alike") {
  const HostMap hosts({0, 0, 1});
  Roster roster(hosts, {0, 1, 2});
  CHECK(roster.next_ordinal(roster.all()) == 0);
  CHECK(roster.next_ordinal(roster.of_rank(1)) == 1);
  CHECK_FALSE(roster.next_ordinal(roster.all()).has_value());
  CHECK(roster.next_ordinal(roster.of_rank(2)) == 1);  // that counted nobody
  CHECK(roster.align_ordinals() == 2);
  CHECK(roster.next_ordinal(roster.all()) == 2);
  CHECK(roster.align_ordinals(9) == 9);
}

TEST_CASE("marks are of places, across words of memory") {
  for (const Stretch who : {Stretch{0, 1}, {63, 65}, {10, 300}, {64, 128}, {299, 300}}) {
    CAPTURE(who.begin);
    Marks marks(300);
    marks.add(who);
    CHECK(marks.count() == who.size());
    for (int place = 0; place < 300; ++place) {
      const bool inside = place >= who.begin && place < who.end;
      REQUIRE(marks.contains(place) == inside);
      REQUIRE(marks.contains_any({place, place + 1}) == inside);
    }
    CHECK_FALSE(marks.contains_any({who.begin, who.begin}));
    CHECK(marks.contains_any({0, 300}));
  }
}

}  // namespace
}  // namespace sirtaki
