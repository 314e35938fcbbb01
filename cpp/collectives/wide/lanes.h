#pragma once

#include <algorithm>

#include "transport/wide_group.h"

namespace sirtaki {

/// Lanes are members that work in parallel, one a host each. There are as many as the smallest host
/// has members: it would have to do the work of more of them by itself.
class Lanes {
 public:
  explicit Lanes(const WideGroup& group) : group_(group) {
    size_t most = 0;
    for (int h = 0; h < group.hosts(); ++h) most = std::max(most, group.members_on(h).size());
    const auto lanes = static_cast<size_t>(group.lanes());
    rows_ = (most + lanes - 1) / lanes;
  }

  int count() const { return group_.lanes(); }
  /// This member's lane; -1: none.
  int own() const {
    const int index = group_.index_of(group_.rank());
    return index < count() ? index : -1;
  }
  int member(int lane, int host) const {
    return group_.members_on(host)[static_cast<size_t>(lane)];
  }
  /// Members of one host have a lane, and share it row by row. -1: this host has no such member.
  int member(int lane, int host, size_t row) const {
    const std::vector<int>& members = group_.members_on(host);
    const size_t index = row * static_cast<size_t>(count()) + static_cast<size_t>(lane);
    return index < members.size() ? members[index] : -1;
  }
  size_t rows() const { return rows_; }

 private:
  const WideGroup& group_;
  size_t rows_;
};

}  // namespace sirtaki
