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
/// consecutive hosts, are one stretch, in whatever way the ranks are distributed.
class Roster {
 public:
  Roster(const HostMap& hosts, const std::vector<int>& members);

  int size() const { return static_cast<int>(ranks_.size()); }
  int rank_at(int place) const { return ranks_[static_cast<size_t>(place)]; }
  /// Empty if the rank is not a member.
  Stretch of_rank(int rank) const;
  /// Throws for hosts that do not exist.
  Stretch of_hosts(HostRange hosts) const;
  Stretch all() const { return {0, size()}; }
  /// The numbers of members on the hosts that have any, in their order.
  std::vector<int> on_hosts() const;

  /// Counts an unnamed request of each member of the stretch and returns its number; nothing if
  /// their counts differ.
  std::optional<uint64_t> next_ordinal(Stretch who);
  /// Calls `visit(some, ordinal)` with the number of a request, 0 if it has a name: once for all,
  /// or for each member alone if their counts of unnamed ones differ.
  template <class Visit>
  void number(Stretch who, const Request& request, Visit visit) {
    if (!request.name.empty()) return visit(who, uint64_t{0});
    if (const auto ordinal = next_ordinal(who)) return visit(who, *ordinal);
    for (int place = who.begin; place < who.end; ++place) {
      const Stretch one{place, place + 1};
      visit(one, *next_ordinal(one));
    }
  }
  /// Sets all members' counts to the highest one, or to `least` if that is higher; returns it.
  uint64_t align_ordinals(uint64_t least = 0);

 private:
  const HostMap& hosts_;
  std::vector<int> ranks_;
  std::vector<int> begins_;         ///< by host: its first place
  std::vector<uint64_t> ordinals_;  ///< of unnamed requests, by place; empty: there were none
};

/// The rosters of process sets, made on first use.
class Rosters {
 public:
  Rosters(const HostMap& hosts, const ProcessSets& sets) : hosts_(hosts), sets_(sets) {}

  /// Throws for a set that does not exist, unless it was used while it did.
  Roster& of(int32_t set) {
    const auto found = rosters_.find(set);
    if (found != rosters_.end()) return found->second;
    return rosters_.emplace(set, Roster(hosts_, sets_.ranks(set))).first->second;
  }
  /// Another set will get the number of this one.
  void forget(int32_t set) { rosters_.erase(set); }

 private:
  const HostMap& hosts_;
  const ProcessSets& sets_;
  std::map<int32_t, Roster> rosters_;
};

/// The marked places of a roster, and their number.
class Marks {
 public:
  explicit Marks(int places) : words_((static_cast<size_t>(places) + 63) / 64) {}

  bool contains(int place) const {
    const auto index = static_cast<size_t>(place);
    return (words_[index / 64] >> (index % 64) & 1) != 0;
  }
  bool contains_any(Stretch who) const;
  /// None of them may be marked yet.
  void add(Stretch who);
  int count() const { return count_; }

 private:
  std::vector<uint64_t> words_;
  int count_ = 0;
};

/// The ranks that a message of the sequencer is for.
struct Recipients {
  int32_t set;
  const Roster& members;   ///< all members of the set
  std::vector<int> ranks;  ///< only these, unless empty
};

/// The senders of one message: ranks, and all members of its process set on some hosts.
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
