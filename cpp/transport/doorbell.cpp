#include "transport/doorbell.h"

#include <string>

#include "base/error.h"

namespace sirtaki {

void Doorbell::check_abort() const {
  const int lost_rank = region_->lost_rank();
  if (lost_rank >= 0) throw PeerLost(lost_rank);
}

void Doorbell::abort(const Loss& loss) const {
  region_->set_loss(place_, loss);
  for (int r = 0; r < region_->ranks(); ++r) {
    wake(region_->rank(r).bell[0]);
    wake(region_->rank(r).bell[1]);
  }
}

}  // namespace sirtaki
