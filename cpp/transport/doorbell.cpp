#include "transport/doorbell.h"

#include <string>

#include "base/error.h"

namespace sirtaki {

void Doorbell::check_abort() const {
  const Abort& abort = region_->abort();
  uint32_t state = abort.state.load(std::memory_order_acquire);
  while (state == 1) {
    cpu_relax();
    state = abort.state.load(std::memory_order_acquire);
  }
  if (state == 2) throw PeerLost(abort.lost_rank);
}

void Doorbell::abort(int lost_rank) const {
  Abort& abort = region_->abort();
  uint32_t none = 0;
  if (abort.state.compare_exchange_strong(none, 1)) {
    abort.lost_rank = lost_rank;
    abort.state.store(2, std::memory_order_release);
  }
  for (int r = 0; r < region_->ranks(); ++r) {
    wake(region_->rank(r).bell[0]);
    wake(region_->rank(r).bell[1]);
  }
}

}  // namespace sirtaki
