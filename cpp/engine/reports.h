#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "engine/id_cache.h"
#include "engine/joins.h"
#include "engine/process_sets.h"
#include "engine/request.h"

namespace sirtaki {

/// An operation that some members have reported.
struct Pending {
  std::string key;
  uint64_t ordinal = 0;
  int32_t set = 0;
  uint32_t id = 0;  ///< all reports so far were this id; 0: `requests` holds them
  int count = 0;
  int first_rank = 0;
  std::vector<bool> reported;     ///< by member
  std::vector<Request> requests;  ///< [0] is the first one's; by member for kinds with sizes
  Request base;
  std::string error;
  ErrorCode error_code = ErrorCode::kMismatch;
  int64_t since_ns = 0;
  bool warned = false;

  int members() const { return static_cast<int>(reported.size()); }
  bool whole() const { return count == members(); }
};

/// Lets the ranks' reports of one operation find each other.
class Reports {
 public:
  Reports(int ranks, const ProcessSets& sets, const IdCache& cache)
      : sets_(sets), cache_(cache), ordinals_(static_cast<size_t>(ranks)) {}

  /// The operation that a rank reports, and whether it is the first one to do so.
  std::pair<Pending&, bool> pending_for(int rank, const Request& request, int64_t now_ns);
  /// Counts the rank's unnamed requests.
  uint64_t next_ordinal(int rank, const Request& request);

  /// A rank reports the operation in full, or by its id.
  void report(Pending& pending, int rank, const Request& request);
  void report(Pending& pending, int rank, uint32_t id);
  /// Several ranks report it by one id; false if each one's report must be looked at.
  bool report(Pending& pending, const std::vector<int>& ranks, uint32_t id);

  /// Members that have neither reported it nor joined.
  std::vector<int> missing(const Pending& pending, const Joins& joins) const;
  /// Takes it out: it is complete, or has failed.
  std::unique_ptr<Pending> take(const Pending& pending);

  /// Turns reports by id into requests.
  void expand(Pending& pending);
  /// The same for what all members have reported by this id, whose order does not matter any more.
  void expand_whole(Pending& pending) const;
  /// The same for all whose ids are to be forgotten.
  void expand_old();
  const Request& base_of(const Pending& pending) const;

  std::vector<Pending*> of_set(int32_t set) const;
  std::vector<Pending*> all() const;
  bool empty() const { return pending_.empty(); }
  /// Some of them rank 0 has submitted, or has no part in.
  bool awaits_peers() const { return awaited_ > 0; }

  /// Lets all members of a set count alike, from the highest number on; returns it.
  uint64_t align_ordinals(int32_t set);
  /// The number of a set will be another one's.
  void forget_ordinals(int32_t set);

 private:
  void mark(Pending& pending, int rank);
  void merge(Pending& pending, int rank, const Request& request);

  const ProcessSets& sets_;
  const IdCache& cache_;
  std::vector<std::map<int32_t, uint64_t>> ordinals_;  ///< of unnamed requests, by rank and set
  std::unordered_map<std::string, std::unique_ptr<Pending>> pending_;
  int awaited_ = 0;
};

/// Members of a kind's operation may give different sizes.
bool has_sizes(Kind kind);

}  // namespace sirtaki
