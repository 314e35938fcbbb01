#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/requests/process_sets.h"
#include "engine/sequencer/reports.h"

namespace sirtaki {

/// What all members have reported and nobody was told to run, in the order in which it was
/// complete.
class Ready {
 public:
  using Batch = std::vector<std::unique_ptr<Pending>>;

  Ready(const Reports& reports, const ProcessSets& sets) : reports_(reports), sets_(sets) {}

  void add(std::unique_ptr<Pending> pending) { queue_.push_back(std::move(pending)); }
  bool empty() const { return queue_.empty(); }
  const std::deque<std::unique_ptr<Pending>>& all() const { return queue_; }

  /// Takes the first one that may go, and what can be joined to it up to so many bytes; `may_go`
  /// tells whether rank 0 can run something of a set that it is a member of.
  Batch take(int64_t fusion_bytes, const std::function<bool(int32_t set)>& may_go);
  /// Takes what concerns a set.
  Batch drop_set(int32_t set);

 private:
  std::unique_ptr<Pending> take_first(const std::function<bool(int32_t set)>& may_go);
  template <class Fits>
  void take_all(Batch& to, Fits fits);

  const Reports& reports_;
  const ProcessSets& sets_;
  std::deque<std::unique_ptr<Pending>> queue_;
};

}  // namespace sirtaki
