#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace sirtaki {

class Engine;
class Handle;

/// How the error of a world begins whose ranks all wait for one another.
inline constexpr std::string_view kDeadlocked = "every rank of the job has been blocked";

/// The threads of this process that call its engines, whichever engines these are: whether one of
/// them can still go on. One thread alone that is blocked in a call cannot, unless a peer lets it.
class Callers {
 public:
  static Callers& of_process();

  void join(Engine& engine);
  void leave(Engine& engine);

  /// A thread asks an engine for something. Costs a comparison where it is always the same one.
  void note_call() {
    const void* caller = &mark_;
    if (first_.load(std::memory_order_relaxed) != caller) note_other(caller);
  }

  /// The ranks of the job, this one too, wait for one another: who is blocked here is told.
  void end(const Error& error);
  /// A call has failed, perhaps only because its peers were told and have left: throws what ended
  /// them.
  void check_failed() const;

  /// A call that may last for ever, in the thread that makes it.
  class Wait {
   public:
    Wait(Engine& engine, const Handle& handle) : engine_(engine), handle_(handle) {}
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

    /// It has lasted for some time again. Throws what `end` was given.
    void goes_on(int64_t now_ns);

   private:
    Engine& engine_;
    const Handle& handle_;
    int64_t looked_ns_ = 0;
    int64_t blocked_ns_ = 0;  ///< for so long nothing has moved; a stopped process does not count
    uint64_t moves_ = 0;
    bool told_ = false;
  };

 private:
  void note_other(const void* caller);
  bool only_one() const { return !several_.load(std::memory_order_relaxed); }
  uint64_t moves();
  void tell(Engine& blocked_in, const Handle& handle, int64_t blocked_ns, int64_t now_ns);
  void check() const;

  static inline thread_local char mark_ = 0;
  std::atomic<const void*> first_{nullptr};
  std::atomic<bool> several_{false};

  mutable std::mutex mutex_;
  std::vector<Engine*> engines_;
  std::optional<Error> ended_;
};

}  // namespace sirtaki
