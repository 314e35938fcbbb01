#include "transport/memory/yield_policy.h"

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kSlice = 3'000'000;  // of the kernel's, for who computes

/// Waits of `length` one after another until there are no more yields; returns when that is.
int64_t spend(YieldPolicy& policy, int64_t at, int64_t length, bool came) {
  for (int i = 0; i < 1000 && policy.may_yield(at); ++i) {
    policy.yielded(at, at + length, came);
    at += length;
  }
  return at;
}

TEST_CASE("who waits yields as long as that ends the wait sooner than a sleep would") {
  YieldPolicy policy;
  int64_t now = kSecond;
  for (int i = 0; i < 10'000; ++i, now += YieldPolicy::kSleepNs) {
    REQUIRE(policy.may_yield(now));
    policy.yielded(now, now + YieldPolicy::kSleepNs, true);
  }
}

TEST_CASE("one long yield among many short ones ends nothing") {
  YieldPolicy policy;
  REQUIRE(policy.may_yield(kSecond));
  policy.yielded(kSecond, kSecond + kSlice, true);
  CHECK(policy.may_yield(kSecond + kSlice));
}

TEST_CASE("yields that are long each time end") {
  YieldPolicy policy;
  const int64_t now = spend(policy, kSecond, kSlice, true);
  CHECK_FALSE(policy.may_yield(now));
  CHECK(now - kSecond <= YieldPolicy::kMostNs + kSlice);
}

TEST_CASE("yields that never end the wait end") {
  YieldPolicy policy;
  const int64_t now = spend(policy, kSecond, 100'000, false);
  CHECK_FALSE(policy.may_yield(now));
}

TEST_CASE("yields that ended are tried again in a small share of the time") {
  YieldPolicy policy;
  int64_t now = spend(policy, kSecond, kSlice, false);
  const int64_t from = now;
  int64_t yielded = 0;
  for (; now - from < 10 * kSecond; now += 1'000'000) {
    if (!policy.may_yield(now)) continue;
    policy.yielded(now, now + kSlice, false);
    now += kSlice;
    yielded += kSlice;
  }
  CHECK(yielded > 0);
  CHECK(yielded <= 10 * kSecond / YieldPolicy::kShare + kSlice);
}

TEST_CASE("a debt beyond measure is forgotten") {
  YieldPolicy policy;
  REQUIRE(policy.may_yield(kSecond));
  policy.yielded(kSecond, 100 * kSecond, false);
  const int64_t pause = YieldPolicy::kDebtNs * YieldPolicy::kShare;
  REQUIRE_FALSE(policy.may_yield(100 * kSecond));
  CHECK(policy.may_yield(100 * kSecond + pause + kSecond));
}

TEST_CASE("a long time without waits saves up no more than the account holds") {
  YieldPolicy policy;
  REQUIRE(policy.may_yield(1'000 * kSecond));
  const int64_t now = spend(policy, 1'000 * kSecond, kSlice, false);
  CHECK(now - 1'000 * kSecond <= YieldPolicy::kMostNs + kSlice);
}

}  // namespace
}  // namespace sirtaki
