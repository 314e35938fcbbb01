#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fork_mark.h"
#include "base/still_time.h"

namespace sirtaki {

class Engine;
class Handle;

/// The start of the error for a world whose ranks all wait for one another.
inline constexpr std::string_view kDeadlocked = "every rank of the job has been blocked";

/// The threads of this process that call any of its engines: whether one of them can still
/// continue. A single thread that is blocked in a call cannot, unless a peer lets it.
class Callers {
 public:
  /// A forked child has its own, without its parent's engines.
  static Callers& of_process();

  void join(Engine& engine);
  void leave(Engine& engine);

  /// Records a calling thread. Costs one comparison if it is always the same thread.
  void note_call() {
    const void* caller = &mark_;
    if (first_.load(std::memory_order_relaxed) != caller) note_other(caller);
  }

  /// All ranks of the job, including this one, wait for one another: notifies blocked callers.
  void end(const Error& error);
  /// A call has failed, perhaps only because its peers were notified and left: throws the error
  /// that ended them.
  void check_failed() const;

  /// A call that may last for ever, in its own thread.
  class Wait {
   public:
    Wait(Engine& engine, const Handle& handle) : engine_(engine), handle_(handle) {}
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

    /// Call from time to time while it lasts. Throws the error given to `end`.
    void goes_on(int64_t now_ns);

   private:
    Engine& engine_;
    const Handle& handle_;
    StillTime blocked_;
    uint64_t moves_ = 0;
    bool told_ = false;
  };

 private:
  void note_other(const void* caller);
  bool only_one() const { return !several_.load(std::memory_order_relaxed); }
  uint64_t moves();
  void tell(Engine& blocked_in, const Handle& handle, int64_t blocked_ns, int64_t now_ns);
  void check() const;

  const ForkMark process_;
  static inline thread_local char mark_ = 0;
  std::atomic<const void*> first_{nullptr};
  std::atomic<bool> several_{false};

  mutable std::mutex mutex_;
  std::vector<Engine*> engines_;
  std::optional<Error> ended_;
};

}  // namespace sirtaki
