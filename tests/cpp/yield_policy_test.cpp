#include "transport/yield_policy.h"

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

constexpr int64_t kLeast = YieldPolicy::kLeastPauseNs;
constexpr int64_t kSecond = 1'000'000'000;

/// Yields at `at` for as long as who computes keeps the core; returns when it has it back.
int64_t yield_long(YieldPolicy& policy, int64_t at) {
  const int64_t after = at + YieldPolicy::kLongNs;
  policy.yielded(at, after);
  return after;
}

TEST_CASE("who waits yields as long as it has the core back soon") {
  YieldPolicy policy;
  CHECK(policy.may_yield(kSecond));
  policy.yielded(kSecond, kSecond + YieldPolicy::kLongNs - 1);
  CHECK(policy.may_yield(kSecond + YieldPolicy::kLongNs));
}

TEST_CASE("after a long yield there are none for a while") {
  YieldPolicy policy;
  const int64_t after = yield_long(policy, kSecond);
  CHECK_FALSE(policy.may_yield(after + kLeast - 1));
  CHECK(policy.may_yield(after + kLeast));
}

TEST_CASE("the pause doubles each time that the yields after it are long again") {
  YieldPolicy policy;
  int64_t after = yield_long(policy, kSecond);
  for (int64_t pause = 2 * kLeast; pause <= 8 * kLeast; pause *= 2) {
    after = yield_long(policy, after + pause / 2);
    CHECK_FALSE(policy.may_yield(after + pause - 1));
    CHECK(policy.may_yield(after + pause));
  }
}

TEST_CASE("the pause has a limit") {
  YieldPolicy policy;
  int64_t after = kSecond;
  for (int i = 0; i < 100; ++i) {
    while (!policy.may_yield(after)) after += kLeast;
    after = yield_long(policy, after);
  }
  CHECK(policy.may_yield(after + YieldPolicy::kMostPauseNs));
  CHECK_FALSE(policy.may_yield(after + YieldPolicy::kMostPauseNs - 1));
}

TEST_CASE("a long yield after a time without any begins anew") {
  YieldPolicy policy;
  int64_t after = yield_long(policy, kSecond);
  after = yield_long(policy, after + kLeast);
  after = yield_long(policy, after + 10 * kLeast);
  CHECK(policy.may_yield(after + kLeast));
}

}  // namespace
}  // namespace sirtaki
