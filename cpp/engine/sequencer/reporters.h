#pragma once

#include <cstdint>
#include <vector>

#include "transport/hosts.h"

namespace sirtaki {

/// Those who say the same: ranks, and all members of the process set in question on some hosts.
struct Reporters {
  std::vector<int32_t> ranks;
  std::vector<HostRange> hosts;

  void add(const Reporters& others) {
    ranks.insert(ranks.end(), others.ranks.begin(), others.ranks.end());
    hosts.insert(hosts.end(), others.hosts.begin(), others.hosts.end());
  }
  bool operator==(const Reporters&) const = default;
};

}  // namespace sirtaki
