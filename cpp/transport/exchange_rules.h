#pragma once

#include <cstddef>

namespace sirtaki {

/// From where on hosts do not simply all talk to each other; the same on all ranks.
struct ExchangeRules {
  /// Up to so many hosts all talk to each other.
  int direct_hosts = 8;
  /// Above: sums for one rank go along a chain from so many bytes a host and lane on, which is when
  /// its many steps take no longer than its bytes.
  size_t chain_bytes = 32 << 10;
  /// What goes at once is at most so much for all other hosts together.
  size_t gathered_bytes = 64 << 10;
};

}  // namespace sirtaki
