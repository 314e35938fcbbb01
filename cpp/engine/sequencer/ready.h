#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/kinds.h"
#include "engine/requests/process_sets.h"
#include "engine/sequencer/reports.h"

namespace sirtaki {

/// The operations that all members have reported and that were not sent out to run, in the order of
/// their completion.
class Ready {
 public:
  using Batch = std::vector<std::unique_ptr<Pending>>;

  explicit Ready(const ProcessSets& sets) : sets_(sets) {}

  void add(std::unique_ptr<Pending> pending) { queue_.push_back(std::move(pending)); }
  bool empty() const { return queue_.empty(); }
  const std::deque<std::unique_ptr<Pending>>& all() const { return queue_; }

  /// Takes the first one that may go, and those that can be joined to it, up to `fusion_bytes`;
  /// `may_go` tells whether rank 0 can run an operation of a set that it belongs to.
  Batch take(int64_t fusion_bytes, const std::function<bool(int32_t set)>& may_go) {
    Batch batch = take_first(may_go);
    if (batch.empty() || !batch[0]->result.empty()) return batch;
    const Request& base = batch[0]->base();
    int64_t bytes = bytes_of(base);
    take_all(batch, [&](const Pending& next) {
      const Request& its = next.base();
      if (!next.result.empty() || !can_fuse(base, its) || bytes + bytes_of(its) > fusion_bytes)
        return false;
      bytes += bytes_of(its);
      return true;
    });
    return batch;
  }

  /// Takes the operations of a set.
  Batch drop_set(int32_t set) {
    Batch dropped;
    take_all(dropped, [&](const Pending& pending) { return pending.set == set; });
    return dropped;
  }

 private:
  /// A change of the sets follows all operations that were ready before it.
  Batch take_first(const std::function<bool(int32_t set)>& may_go) {
    Batch first;
    for (auto it = queue_.begin(); it != queue_.end(); ++it) {
      const Request& base = (*it)->base();
      const bool fence = changes_sets(base.kind);
      if (fence && it != queue_.begin()) break;
      if (sets_.index(base.set, 0) < 0 || base.launched() || may_go(base.set)) {
        first.push_back(std::move(*it));
        queue_.erase(it);
        break;
      }
      if (fence) break;
    }
    return first;
  }

  template <class Fits>
  void take_all(Batch& to, Fits fits) {
    for (auto it = queue_.begin(); it != queue_.end();) {
      if (fits(**it)) {
        to.push_back(std::move(*it));
        it = queue_.erase(it);
      } else {
        ++it;
      }
    }
  }

  const ProcessSets& sets_;
  std::deque<std::unique_ptr<Pending>> queue_;
};

}  // namespace sirtaki
