#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/error.h"
#include "engine/sequencer/roster.h"

namespace sirtaki {

/// The joined ranks of each process set: they have no more data, and take part with zeros.
class Joins {
 public:
  /// `place`: the rank's in its set's roster of `places` places. Throws if a rank joins twice.
  void add(int32_t set, int rank, int place, int places, bool on_accelerator) {
    Joined& joined = sets_.try_emplace(set, places).first->second;
    if (joined.marks.contains(place)) {
      throw Error(ErrorCode::kInternal, "rank " + std::to_string(rank) + " joins twice");
    }
    joined.marks.add({place, place + 1});
    joined.last = rank;
    joined.on_accelerators &= on_accelerator;
  }
  bool contains(int32_t set, int place) const {
    const auto found = sets_.find(set);
    return found != sets_.end() && found->second.marks.contains(place);
  }
  int count(int32_t set) const {
    const auto found = sets_.find(set);
    return found == sets_.end() ? 0 : found->second.marks.count();
  }
  /// Whether those who have joined can take part on accelerators, too.
  bool on_accelerators(int32_t set) const { return sets_.at(set).on_accelerators; }
  /// For a set with joined ranks: the rank that joined last.
  int last(int32_t set) const { return sets_.at(set).last; }
  void forget(int32_t set) { sets_.erase(set); }
  bool empty() const { return sets_.empty(); }

 private:
  struct Joined {
    explicit Joined(int places) : marks(places) {}

    Marks marks;
    int last = -1;
    bool on_accelerators = true;
  };

  std::map<int32_t, Joined> sets_;
};

}  // namespace sirtaki
