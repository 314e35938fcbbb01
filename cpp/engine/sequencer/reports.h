#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/requests/process_sets.h"
#include "engine/requests/request.h"
#include "engine/sequencer/id_cache.h"
#include "engine/sequencer/joins.h"
#include "engine/sequencer/roster.h"

namespace sirtaki {

/// A rank tells what it cannot.
[[noreturn]] void refuse_report(int rank, const std::string& why);

/// An operation that some members have reported.
struct Pending {
  explicit Pending(int members) : reported(members), members(members) {}

  std::string key;
  uint64_t ordinal = 0;
  int32_t set = 0;
  const IdCache::Known* known = nullptr;  ///< all reports so far were by its id; null: in full
  int first_rank = 0;
  Marks reported;  ///< by place in the set's roster
  int members;
  int absent = 0;                 ///< members that have joined without reporting it
  Request request;                ///< reported in full
  std::vector<Request> requests;  ///< the same by member where it has sizes, else none
  std::string error;
  int64_t since_ns = 0;

  bool whole() const { return reported.count() == members; }
  /// Nobody is missing but those who have joined.
  bool complete() const { return reported.count() + absent == members; }
  const Request& base() const { return known != nullptr ? known->response.base : request; }
  /// Turns reports by id of all members, whose order does not matter any more, into requests.
  void expand_whole();
};

/// Why the members cannot run an operation that all of them have reported or joined without;
/// empty: they can.
std::string cannot_run(const Pending& pending, const ProcessSets& sets, const Joins& joins);

/// Lets the ranks' reports of one operation find each other. What a report costs does not grow with
/// the members of its set.
class Reports {
 public:
  Reports(const HostMap& hosts, const ProcessSets& sets, const Joins& joins)
      : sets_(sets), joins_(joins), rosters_(hosts, sets) {}

  Roster& roster(int32_t set) { return rosters_.of(set); }

  /// The operation that ranks report, and whether they are the first ones to do so.
  std::pair<Pending*, bool> pending_for(Stretch who, const Request& request, uint64_t ordinal,
                                        int64_t now_ns);

  /// Ranks report the operation in full, or by its id.
  void report(Pending& pending, Stretch who, const Request& request);
  void report(Pending& pending, Stretch who, const IdCache::Known& known);
  /// A rank has joined: it will report nothing that it has not.
  void join(int32_t set, int place);

  /// Members that have reported it, and those that have neither done so nor joined.
  std::vector<int> reporters(const Pending& pending);
  std::vector<int> missing(const Pending& pending);
  /// Takes it out: it is complete, or has failed.
  std::unique_ptr<Pending> take(const Pending& pending);

  /// Turns reports by id into requests.
  void expand(Pending& pending);

  std::vector<Pending*> of_set(int32_t set) const;
  std::vector<Pending*> all() const;
  bool empty() const { return pending_.empty(); }
  /// Some of them rank 0 has submitted, or has no part in.
  bool awaits_peers() const { return awaited_ > 0; }

  /// The number of a set will be another one's.
  void forget_set(int32_t set) { rosters_.forget(set); }

 private:
  void mark(Pending& pending, Stretch who);
  void merge(Pending& pending, Stretch who, const Request& request);
  void merge_known(Pending& pending, Stretch who, const IdCache::Known& known);
  template <class Picks>
  std::vector<int> ranks_of(const Pending& pending, Picks picks);

  const ProcessSets& sets_;
  const Joins& joins_;
  Rosters rosters_;
  std::unordered_map<std::string, std::unique_ptr<Pending>> pending_;
  int awaited_ = 0;
};

}  // namespace sirtaki
