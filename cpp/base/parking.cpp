#include "base/parking.h"

#include "base/machine.h"

namespace sirtaki {

void Parking::sleep(Wakeups seen, int64_t timeout_ns) { machine::sleep(bell_, seen, timeout_ns); }

void Parking::wake() {
  bell_.fetch_add(1, std::memory_order_release);
  machine::wake(bell_);
}

}  // namespace sirtaki
