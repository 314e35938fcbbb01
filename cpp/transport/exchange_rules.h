#pragma once

#include <cstddef>

namespace sirtaki {

/// The limits beyond which not every host talks to every other; the same on all ranks.
struct ExchangeRules {
  /// Up to this many hosts all talk to each other.
  int direct_hosts = 8;
  /// The most bytes that go at once, for all other hosts together.
  size_t gathered_bytes = 64 << 10;
  /// This many of more hosts exchange sums in a step.
  int radix = 2;
};

}  // namespace sirtaki
