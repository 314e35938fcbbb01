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
    region_->rank(r).engine.wake();
    region_->rank(r).caller.wake();
  }
}

uint32_t Doorbell::data_sleeps() const {
  uint64_t sum = 0;
  for (int r = 0; r < region_->ranks(); ++r) {
    sum += region_->rank(r).data_sleeps.load(std::memory_order_relaxed);
  }
  return static_cast<uint32_t>(sum / static_cast<uint64_t>(region_->ranks()));
}

void Doorbell::doze(const Sleep& sleep, int64_t nap_ns) {
  std::vector<pollfd> polled = sleep.polled;
  const timespec nap{0, nap_ns};
  // Whatever ended it, the caller looks again.
  ppoll(polled.data(), polled.size(), &nap, nullptr);
}

}  // namespace sirtaki
