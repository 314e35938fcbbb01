#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/still_time.h"
#include "engine/requests/process_sets.h"
#include "engine/requests/request.h"
#include "engine/sequencer/id_cache.h"
#include "engine/sequencer/joins.h"
#include "engine/sequencer/roster.h"

namespace sirtaki {

/// Throws for a rank's impossible report.
[[noreturn]] void refuse_report(int rank, const std::string& why);

/// An operation that some members have reported.
struct Pending {
  explicit Pending(int members) : reported(members), members(members) {}

  std::string key;
  uint64_t ordinal = 0;
  int32_t set = 0;
  const IdCache::Known* known = nullptr;  ///< all reports so far used its id; null: none did
  int first_rank = 0;
  Marks reported;  ///< by place in the set's roster
  int members;
  int absent = 0;                 ///< members that have joined without reporting it
  Request request;                ///< the request that was reported in full
  std::vector<Request> requests;  ///< the same by member if it has sizes, else empty
  std::string numbers;            ///< those that reports carried, by place
  int carriers = 0;               ///< members whose reports did
  std::string result;             ///< the sum of all members' numbers, if all reports carried them
  bool offered = false;           ///< who has still to report it has the others' numbers
  std::string error;
  StillTime stalled;  ///< while members are missing

  bool whole() const { return reported.count() == members; }
  /// Whether only ranks that have joined are missing.
  bool complete() const { return reported.count() + absent == members; }
  const Request& base() const { return known != nullptr ? known->response.base : request; }
  /// Converts reports by id of all members, whose order no longer matters, into requests.
  void expand_whole();
};

/// Why the members cannot run an operation that all of them have reported or joined without; empty
/// if they can.
std::string cannot_run(const Pending& pending, const ProcessSets& sets, const Joins& joins);

/// What ranks report by a short id, and the numbers of each of them that came with it, if any.
struct KnownReport {
  const IdCache::Known& known;
  std::string_view numbers;
};

/// Matches the ranks' reports of each operation. The cost of a report does not grow with the
/// members of its set.
class Reports {
 public:
  Reports(const HostMap& hosts, const ProcessSets& sets, const Joins& joins)
      : sets_(sets), joins_(joins), rosters_(hosts, sets) {}

  Roster& roster(int32_t set) { return rosters_.of(set); }

  /// The operation that ranks report, and whether they are the first to do so.
  std::pair<Pending*, bool> pending_for(Stretch who, const Request& request, uint64_t ordinal);

  /// Ranks report the operation in full, or by its id.
  void report(Pending& pending, Stretch who, const Request& request);
  void report(Pending& pending, Stretch who, const KnownReport& report);
  /// A rank has joined: it will report no further operation.
  void join(int32_t set, int place);

  /// The members that have reported it, and those that have neither reported it nor joined.
  std::vector<int> reporters(const Pending& pending);
  std::vector<int> missing(const Pending& pending);
  /// Removes an operation that is complete or has failed.
  std::unique_ptr<Pending> take(const Pending& pending);

  /// Converts reports by id into requests.
  void expand(Pending& pending);

  std::vector<Pending*> of_set(int32_t set) const;
  std::vector<Pending*> all() const;
  bool empty() const { return pending_.empty(); }
  /// Whether rank 0 has submitted one of them, or has no part in it.
  bool awaits_peers() const { return awaited_ > 0; }

  /// Another set will get the number of this one.
  void forget_set(int32_t set) { rosters_.forget(set); }

 private:
  void mark(Pending& pending, Stretch who);
  static void keep(Pending& pending, Stretch who, std::string_view numbers);
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
