#include "base/parking.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace sirtaki {

void Parking::sleep(Ticket ticket, int64_t timeout_ns) {
  const timespec limit{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell_), FUTEX_WAIT, ticket,
          timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
}

void Parking::wake() {
  bell_.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sirtaki
