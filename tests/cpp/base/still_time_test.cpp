#include "base/still_time.h"

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

constexpr int64_t kMost = 10;

TEST_CASE("time counts from the first look on, while nothing moves") {
  StillTime time;
  CHECK(time.look(true, 100, kMost) == 0);
  CHECK(time.look(true, 105, kMost) == 5);
  CHECK(time.look(true, 112, kMost) == 12);
  CHECK(time.looked_ns() == 112);
}

TEST_CASE("what has moved begins anew") {
  StillTime time;
  time.look(true, 100, kMost);
  time.look(true, 105, kMost);
  CHECK(time.look(false, 110, kMost) == 0);
  CHECK(time.look(true, 113, kMost) == 3);
  time.forget();
  CHECK(time.look(true, 120, kMost) == 0);
}

TEST_CASE("a pause of who looks counts as one look") {
  StillTime time;
  time.look(true, 100, kMost);
  CHECK(time.look(true, 1'000'000, kMost) == kMost);
  CHECK(time.look(true, 1'000'001, kMost) == kMost + 1);
}

}  // namespace
}  // namespace sirtaki
