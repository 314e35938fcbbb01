#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

// Every way to sleep and to wake: the core asks here, and `now_ns` for the time, so that a
// simulation can run it in one thread, without waiting.
namespace sirtaki::machine {

/// What takes the place of the system.
class Simulation {
 public:
  virtual ~Simulation() = default;

  virtual int64_t now_ns() = 0;
  /// Time passes, and nobody else runs.
  virtual void nap(int64_t ns) = 0;
  /// Nobody else runs who could wake this thread: never to be reached.
  [[noreturn]] virtual void sleep() = 0;
  /// Who sleeps at the word wakes.
  virtual void wake(const void* word) = 0;
  /// Who polls the event wakes.
  virtual void ring(int event) = 0;
};

/// Null: the system itself.
inline constinit std::atomic<Simulation*> simulation{nullptr};

inline Simulation* simulated() { return simulation.load(std::memory_order_relaxed); }

/// Gives the core to others.
void yield();
void nap(int64_t ns);
/// As poll(2).
int poll(pollfd* polled, size_t count, int milliseconds);
/// Sleeps while the word has this value, for at most so long (negative: no limit). May return
/// early.
void sleep(std::atomic<uint32_t>& word, uint32_t value, int64_t limit_ns);
/// Wakes all that sleep at the word, in all processes.
void wake(std::atomic<uint32_t>& word);
/// Makes an event descriptor readable.
void ring(int event);

}  // namespace sirtaki::machine
