#include "transport/memory/handshake_policy.h"

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

constexpr uint32_t kKind = 1;
constexpr size_t kBytes = 1 << 20;

/// How many operations in a row hold no handshake, before the one that does.
uint32_t skipped(HandshakePolicy& policy, size_t bytes = kBytes) {
  uint32_t count = 0;
  while (!policy.is_due(kKind, bytes)) ++count;
  return count;
}

TEST_CASE("members meet for every operation as long as something is shared") {
  HandshakePolicy policy;
  for (int i = 0; i < 5; ++i) {
    CHECK(skipped(policy) == 0);
    policy.met(kKind, kBytes, true);
  }
}

TEST_CASE("members never meet for few bytes, and always for many") {
  HandshakePolicy policy;
  CHECK_FALSE(policy.is_due(kKind, HandshakePolicy::kLeast - 1));
  for (int i = 0; i < 5; ++i) policy.met(kKind, HandshakePolicy::kLarge, false);
  CHECK(policy.is_due(kKind, HandshakePolicy::kLarge));
}

TEST_CASE("members meet ever less often where nothing is shared") {
  HandshakePolicy policy;
  for (const uint32_t expected : {0, 1, 3, 7, 15, 15}) {
    CHECK(skipped(policy) == expected);
    policy.met(kKind, kBytes, false);
  }
}

TEST_CASE("members meet every time again once something is shared") {
  HandshakePolicy policy;
  for (int i = 0; i < 4; ++i) policy.met(kKind, kBytes, false);
  CHECK(skipped(policy) == 15);
  policy.met(kKind, kBytes, true);
  CHECK(skipped(policy) == 0);
}

TEST_CASE("what is not shared says nothing of operations of other sizes") {
  HandshakePolicy policy;
  policy.met(kKind, kBytes, false);
  CHECK(skipped(policy, 3 * kBytes) == 0);
}

}  // namespace
}  // namespace sirtaki
