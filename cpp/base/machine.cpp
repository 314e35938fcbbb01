#include "base/machine.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace sirtaki::machine {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

timespec as_timespec(int64_t ns) { return {ns / kSecond, ns % kSecond}; }

}  // namespace

void yield() {
  if (Simulation* const other = simulated()) return other->nap(1);
  sched_yield();
}

int core() { return sched_getcpu(); }

void nap(int64_t ns) {
  if (Simulation* const other = simulated()) return other->nap(ns);
  const timespec time = as_timespec(ns);
  nanosleep(&time, nullptr);
}

int poll(pollfd* polled, size_t count, int64_t limit_ns) {
  if (limit_ns != 0 && simulated() != nullptr) simulated()->sleep();
  const timespec limit = as_timespec(limit_ns);
  return ::ppoll(polled, count, limit_ns < 0 ? nullptr : &limit, nullptr);
}

void sleep(std::atomic<uint32_t>& word, uint32_t value, int64_t limit_ns) {
  if (simulated() != nullptr) simulated()->sleep();
  const timespec limit = as_timespec(limit_ns);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value,
          limit_ns < 0 ? nullptr : &limit, nullptr, 0);
}

void wake(std::atomic<uint32_t>& word) {
  if (Simulation* const other = simulated()) return other->wake(&word);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ring(int event) {
  if (Simulation* const other = simulated()) other->ring(event);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof one);
}

}  // namespace sirtaki::machine
