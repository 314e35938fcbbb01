#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/requests/request.h"

namespace sirtaki {

/// The process sets a rank or the sequencer knows: id → world ranks in ascending order. Set 0 is
/// the world.
class ProcessSets {
 public:
  explicit ProcessSets(int world_size) {
    std::vector<int>& world = sets_[0];
    world.resize(static_cast<size_t>(world_size));
    std::iota(world.begin(), world.end(), 0);
  }

  bool contains(int32_t set) const { return sets_.count(set) > 0; }
  const std::vector<int>& ranks(int32_t set) const {
    const auto found = sets_.find(set);
    if (found != sets_.end()) return found->second;
    throw Error(ErrorCode::kInternal, "there is no process set " + std::to_string(set));
  }
  const std::map<int32_t, std::vector<int>>& all() const { return sets_; }

  /// The rank's number within the set; -1 if it is not a member.
  int index(int32_t set, int rank) const {
    const std::vector<int>& members = ranks(set);
    const auto at = std::lower_bound(members.begin(), members.end(), rank);
    return at != members.end() && *at == rank ? static_cast<int>(at - members.begin()) : -1;
  }

  /// The id of the set of exactly these ranks; -1 if there is none.
  int32_t find(const std::vector<int>& ranks) const {
    const auto found = std::ranges::find(sets_, ranks, &decltype(sets_)::value_type::second);
    return found == sets_.end() ? -1 : found->first;
  }

  /// Freed ids are reused in the order in which they were freed.
  int32_t next_id() const {
    return freed_.empty() ? static_cast<int32_t>(sets_.size()) : freed_.front();
  }

  /// Adds or removes a set, as agreed.
  void change(const Request& change) {
    const int32_t set = change.root;
    if (change.kind == Kind::kRemoveSet) {
      sets_.erase(set);
      freed_.push_back(set);
    } else {
      sets_[set] = {change.splits.begin(), change.splits.end()};
      std::erase(freed_, set);
    }
  }

 private:
  std::map<int32_t, std::vector<int>> sets_;
  std::vector<int32_t> freed_;
};

}  // namespace sirtaki
