#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/requests/process_sets.h"
#include "engine/requests/request.h"
#include "transport/hosts.h"

namespace sirtaki {

/// Consecutive places of a roster.
struct Stretch {
  int begin = 0;
  int end = 0;

  int size() const { return end - begin; }
};

/// The members of a process set in the order of hosts, so that the members of a host, or of
/// consecutive hosts, are one stretch, however the ranks are dealt out.
class Roster {
 public:
  Roster(const HostMap& hosts, const std::vector<int>& members);

  int size() const { return static_cast<int>(ranks_.size()); }
  int rank_at(int place) const { return ranks_[static_cast<size_t>(place)]; }
  /// Empty for a rank that is no member.
  Stretch of_rank(int rank) const;
  /// Throws for hosts that do not exist.
  Stretch of_hosts(HostRange hosts) const;
  Stretch all() const { return {0, size()}; }

  /// Counts an unnamed request of each member of the stretch and returns its number; nothing where
  /// they have made different numbers of them.
  std::optional<uint64_t> next_ordinal(Stretch who);
  /// Tells `visit(some, ordinal)` the number of a request, 0 where it has a name: once for all, or
  /// for each member alone where they have made different numbers of unnamed ones.
  template <class Visit>
  void number(Stretch who, const Request& request, Visit visit) {
    if (!request.name.empty()) return visit(who, uint64_t{0});
    if (const auto ordinal = next_ordinal(who)) return visit(who, *ordinal);
    for (int place = who.begin; place < who.end; ++place) {
      const Stretch one{place, place + 1};
      visit(one, *next_ordinal(one));
    }
  }
  /// Lets all members count alike from the highest number on, or from `least` if that is higher;
  /// returns it.
  uint64_t align_ordinals(uint64_t least = 0);

 private:
  const HostMap& hosts_;
  std::vector<int> ranks_;
  std::vector<int> begins_;         ///< by host: its first place
  std::vector<uint64_t> ordinals_;  ///< of unnamed requests, by place; empty: none was made
};

/// The rosters of process sets, made when they are first asked for.
class Rosters {
 public:
  Rosters(const HostMap& hosts, const ProcessSets& sets) : hosts_(hosts), sets_(sets) {}

  /// Throws for a set that does not exist and was not asked for while it did.
  Roster& of(int32_t set) {
    const auto found = rosters_.find(set);
    if (found != rosters_.end()) return found->second;
    return rosters_.emplace(set, Roster(hosts_, sets_.ranks(set))).first->second;
  }
  /// The number of a set will be another one's.
  void forget(int32_t set) { rosters_.erase(set); }

 private:
  const HostMap& hosts_;
  const ProcessSets& sets_;
  std::map<int32_t, Roster> rosters_;
};

/// Which places of a roster are marked, and how many.
class Marks {
 public:
  explicit Marks(int places) : words_((static_cast<size_t>(places) + 63) / 64) {}

  bool contains(int place) const {
    const auto index = static_cast<size_t>(place);
    return (words_[index / 64] >> (index % 64) & 1) != 0;
  }
  bool contains_any(Stretch who) const;
  /// None of them is marked yet.
  void add(Stretch who);
  int count() const { return count_; }

 private:
  std::vector<uint64_t> words_;
  int count_ = 0;
};

/// Whom a message of the sequencer is for.
struct Recipients {
  int32_t set;
  const Roster& members;   ///< of the set: all of them
  std::vector<int> ranks;  ///< only these, unless empty
};

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
