#include "transport/memory/doorbell.h"

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
    region_->event_descriptors().ring(r);
  }
}

void Doorbell::end_world(const Loss& loss) const {
  abort(loss);
  check_abort();
  throw PeerLost(loss.rank);
}

uint32_t Doorbell::data_sleeps() const {
  uint64_t sum = 0;
  for (int r = 0; r < region_->ranks(); ++r) {
    sum += region_->rank(r).data_sleeps.load(std::memory_order_relaxed);
  }
  return static_cast<uint32_t>(sum / static_cast<uint64_t>(region_->ranks()));
}

bool Doorbell::shares_core() const {
  const int32_t core = machine::core() + 1;
  RankBlock& own = region_->rank(place_);
  // Writes only a changed value: peers read this line all the time.
  if (own.core.load(std::memory_order_relaxed) != core) {
    own.core.store(core, std::memory_order_relaxed);
  }
  for (int place = 0; place < region_->ranks(); ++place) {
    const int32_t its = region_->rank(place).core.load(std::memory_order_relaxed);
    if (place != place_ && its == core && core > 0) return true;
  }
  return false;
}

uint32_t Doorbell::knock(int peer) const {
  region_->rank(peer).engine.wake();
  return region_->rank(peer).turns.load(std::memory_order_relaxed);
}

void Doorbell::ring_engine() const {
  engine().wake();
  region_->event_descriptors().ring(place_);  // it may be the driver, and poll
}

void Doorbell::sleep_in_poll(const Sleep& sleep, int64_t limit_ns) const {
  std::vector<pollfd> polled = sleep.polled;
  polled.push_back({region_->event_descriptors().descriptor(place_), POLLIN, 0});
  // Whatever ended the poll, the caller checks again.
  machine::poll(polled.data(), polled.size(), limit_ns);
  region_->event_descriptors().silence(place_);
}

}  // namespace sirtaki
