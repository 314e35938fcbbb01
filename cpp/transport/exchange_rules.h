#pragma once

#include <cstddef>

namespace sirtaki {

/// From where on hosts do not simply all talk to each other; the same on all ranks.
struct ExchangeRules {
  /// Up to so many hosts all talk to each other.
  int direct_hosts = 8;
  /// What goes at once is at most so much for all other hosts together.
  size_t gathered_bytes = 64 << 10;
};

}  // namespace sirtaki
