#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

// Every way to sleep and to wake. The core goes through these functions and `now_ns`, so that a
// simulation can run it in one thread, without waiting.
namespace sirtaki::machine {

/// A replacement for the system's functions.
class Simulation {
 public:
  virtual ~Simulation() = default;

  virtual int64_t now_ns() = 0;
  /// Lets time pass; nobody else runs.
  virtual void nap(int64_t ns) = 0;
  /// Nobody else runs who could wake this thread, so this must never be reached.
  [[noreturn]] virtual void sleep() = 0;
  /// Wakes the sleepers at the word.
  virtual void wake(const void* word) = 0;
  /// Wakes the pollers of the event.
  virtual void ring(int event) = 0;
};

/// Null: the functions use the system itself.
inline constinit std::atomic<Simulation*> simulation{nullptr};

inline Simulation* simulated() { return simulation.load(std::memory_order_relaxed); }

/// Yields the core to other threads.
void yield();
/// The core on which this thread runs; negative if the system does not report it.
int core();
void nap(int64_t ns);
/// Like poll(2), for at most `limit_ns` (negative: no limit).
int poll(pollfd* polled, size_t count, int64_t limit_ns);
/// Sleeps while the word has this value, for at most `limit_ns` (negative: no limit). May return
/// early.
void sleep(std::atomic<uint32_t>& word, uint32_t value, int64_t limit_ns);
/// Wakes all threads that sleep at the word, in all processes.
void wake(std::atomic<uint32_t>& word);
/// Makes an event descriptor readable.
void ring(int event);

}  // namespace sirtaki::machine
