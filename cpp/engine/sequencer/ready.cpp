#include "engine/sequencer/ready.h"

namespace sirtaki {

Ready::Batch Ready::take(int64_t fusion_bytes, const std::function<bool(int32_t set)>& may_go) {
  Batch batch;
  std::unique_ptr<Pending> first = take_first(may_go);
  if (first == nullptr) return batch;
  batch.push_back(std::move(first));
  const Request& base = reports_.base_of(*batch[0]);
  int64_t bytes = bytes_of(base);
  take_all(batch, [&](const Pending& next) {
    const Request& its = reports_.base_of(next);
    if (!can_fuse(base, its) || bytes + bytes_of(its) > fusion_bytes) return false;
    bytes += bytes_of(its);
    return true;
  });
  return batch;
}

Ready::Batch Ready::drop_set(int32_t set) {
  Batch dropped;
  take_all(dropped, [&](const Pending& pending) { return pending.set == set; });
  return dropped;
}

/// A change of the sets goes behind all that was ready before it.
std::unique_ptr<Pending> Ready::take_first(const std::function<bool(int32_t set)>& may_go) {
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    const Request& base = reports_.base_of(**it);
    const bool fence = changes_sets(base.kind);
    if (fence && it != queue_.begin()) return nullptr;
    if (sets_.index(base.set, 0) < 0 || base.launched() || may_go(base.set)) {
      std::unique_ptr<Pending> taken = std::move(*it);
      queue_.erase(it);
      return taken;
    }
    if (fence) return nullptr;
  }
  return nullptr;
}

template <class Fits>
void Ready::take_all(Batch& to, Fits fits) {
  for (auto it = queue_.begin(); it != queue_.end();) {
    if (fits(**it)) {
      to.push_back(std::move(*it));
      it = queue_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace sirtaki
