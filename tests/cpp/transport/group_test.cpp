#include "transport/group.h"

#include <doctest/doctest.h>

namespace sirtaki {
namespace {

/// The members of a group, in one thread.
struct TwoMembers {
  std::shared_ptr<Region> region = Region::anonymous(2);
  Endpoint endpoints[2] = {{region, 0, 0, {}}, {region, 1, 1, {}}};
  Group first{endpoints[0], HostMap::single(2), {0, 1}, 0};
  Group second{endpoints[1], HostMap::single(2), {0, 1}, 0};
};

/// A collective in which all hear of all.
Task meet(Group& group) {
  co_await group.begin_small();
  group.publish();
  co_await group.all_published(1);
  group.end();
}

/// One in which nobody hears of anybody.
Task pass(Group& group) {
  co_await group.begin_stream();
  group.end();
}

void meet_both(TwoMembers& two) {
  Strand first(meet(two.first));
  Strand second(meet(two.second));
  CHECK_FALSE(first.advance());
  CHECK(second.advance());
  CHECK(first.advance());
}

TEST_CASE("slots are used again once all have published since, whatever else they count") {
  TwoMembers two;
  for (int i = 0; i < 4; ++i) meet_both(two);
  two.region->set_counters(0)[1].drained.store(0);
  Strand first(meet(two.first));
  CHECK_FALSE(first.advance());
  CHECK(first.awaited().phase == Phase::kWrite);
}

TEST_CASE("slots are not used again before all have left the collective that used them last") {
  TwoMembers two;
  for (int i = 0; i < 4; ++i) meet_both(two);
  CHECK(Strand(pass(two.first)).advance());
  Strand first(pass(two.first));
  CHECK_FALSE(first.advance());
  CHECK(first.awaited().phase == Phase::kLeave);
  CHECK(Strand(pass(two.second)).advance());
  CHECK(first.advance());
}

}  // namespace
}  // namespace sirtaki
