#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"

namespace sirtaki {

/// Who of which process set has joined: has no more data, and takes part with zeros.
class Joins {
 public:
  /// Throws for a member that joins twice.
  void add(int32_t set, int rank, int member, size_t members, bool on_accelerator) {
    Joined& joined = sets_[set];
    joined.members.resize(members);
    if (joined.members[static_cast<size_t>(member)]) {
      throw Error(ErrorCode::kInternal, "rank " + std::to_string(rank) + " joins twice");
    }
    joined.members[static_cast<size_t>(member)] = true;
    joined.last = rank;
    joined.on_accelerators &= on_accelerator;
    ++joined.count;
  }
  bool contains(int32_t set, int member) const {
    const auto found = sets_.find(set);
    return found != sets_.end() && found->second.members[static_cast<size_t>(member)];
  }
  /// Those who have joined can take part on accelerators, too.
  bool on_accelerators(int32_t set) const { return sets_.at(set).on_accelerators; }
  /// All members of the set have joined.
  bool complete(int32_t set) const {
    const auto found = sets_.find(set);
    return found != sets_.end() && found->second.count == found->second.members.size();
  }
  /// Of a set in which somebody joined: the rank that was the last to do so.
  int last(int32_t set) const { return sets_.at(set).last; }
  void forget(int32_t set) { sets_.erase(set); }
  bool empty() const { return sets_.empty(); }

 private:
  struct Joined {
    std::vector<bool> members;
    size_t count = 0;
    int last = -1;
    bool on_accelerators = true;
  };

  std::map<int32_t, Joined> sets_;
};

}  // namespace sirtaki
