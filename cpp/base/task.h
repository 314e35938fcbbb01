#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <utility>

#include "base/awaited.h"
#include "base/frame_pool.h"

namespace sirtaki {

class Strand;

/// A coroutine: work that can be suspended wherever it waits. It starts when it is awaited, or when
/// its strand first advances; destroying it abandons it where it is.
class [[nodiscard]] Task {
 public:
  struct promise_type;
  using Coroutine = std::coroutine_handle<promise_type>;

  Task() = default;
  Task(Task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  ~Task() {
    if (coroutine_) coroutine_.destroy();
  }

  /// Runs it within another task.
  auto operator co_await() const noexcept;

 private:
  friend class Strand;
  explicit Task(Coroutine coroutine) : coroutine_(coroutine) {}

  void rethrow() const;

  Coroutine coroutine_;
};

/// The tasks of one operation; the innermost one waits for something. The caller of `advance` lends
/// them a thread until they must wait.
class Strand {
 public:
  explicit Strand(Task task);
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  /// Runs the task until it must wait or its turn ends; returns true when it is done. Rethrows what
  /// the task threw.
  bool advance();

  /// Whether `advance` would make progress.
  bool is_ready() const { return ready_ == nullptr || ready_(awaited_); }
  /// What must happen before that.
  Awaited awaited() const { return ready_ == nullptr ? Awaited{} : describe_(awaited_); }

 private:
  friend class Task;
  friend struct Task::promise_type;
  friend class GiveWay;
  template <class Ready>
  friend class Until;

  /// A task that never has to wait gives way to others after this many awaits.
  static constexpr uint32_t kTurn = 64;

  using IsReady = bool (*)(const void* awaited);
  using Describe = Awaited (*)(const void* awaited);

  void suspend(Task::Coroutine innermost, IsReady ready, Describe describe, const void* awaited) {
    innermost_ = innermost;
    ready_ = ready;
    awaited_ = awaited;
    describe_ = describe;
  }

  Task task_;
  Task::Coroutine innermost_;
  IsReady ready_ = nullptr;
  const void* awaited_ = nullptr;
  Describe describe_ = nullptr;
  uint32_t turn_ = 0;
};

struct Task::promise_type {
  /// Coroutines whose first parameter has a `frame_pool()` take their frames from it.
  template <class First, class... Rest>
  static void* operator new(size_t bytes, First& first, Rest&...) {
    if constexpr (requires { first.frame_pool(); }) {
      return FramePool::take(bytes, &first.frame_pool());
    } else {
      return FramePool::take(bytes, nullptr);
    }
  }
  static void* operator new(size_t bytes) { return FramePool::take(bytes, nullptr); }
  static void operator delete(void* memory) noexcept { FramePool::give(memory); }

  /// Resumes the task that awaits this one.
  struct Final {
    bool await_ready() const noexcept { return false; }
    void await_suspend(Coroutine coroutine) const noexcept {
      coroutine.promise().strand->innermost_ = coroutine.promise().waiting;
    }
    void await_resume() const noexcept {}
  };

  Task get_return_object() { return Task(Coroutine::from_promise(*this)); }
  std::suspend_always initial_suspend() const noexcept { return {}; }
  Final final_suspend() const noexcept { return {}; }
  void return_void() const noexcept {}
  void unhandled_exception() noexcept { error = std::current_exception(); }

  Strand* strand = nullptr;
  Coroutine waiting;  ///< the task that awaits this one; none while this one has not had to wait
                      ///< itself
  std::exception_ptr error;
};

inline void Task::rethrow() const {
  if (coroutine_.promise().error) std::rethrow_exception(coroutine_.promise().error);
}

inline auto Task::operator co_await() const noexcept {
  struct Awaiter {
    const Task& task;
    bool await_ready() const noexcept { return false; }
    /// Runs the inner task; the outer one waits only if the inner one must.
    bool await_suspend(Coroutine outer) const {
      promise_type& inner = task.coroutine_.promise();
      inner.strand = outer.promise().strand;
      task.coroutine_.resume();
      if (task.coroutine_.done()) return false;
      inner.waiting = outer;
      return true;
    }
    void await_resume() const { task.rethrow(); }
  };
  return Awaiter{*this};
}

inline Strand::Strand(Task task) : task_(std::move(task)), innermost_(task_.coroutine_) {
  task_.coroutine_.promise().strand = this;
}

inline bool Strand::advance() {
  turn_ = 0;
  while (innermost_) {
    if (!is_ready() || turn_ > kTurn) return false;
    ready_ = nullptr;
    std::exchange(innermost_, nullptr).resume();
  }
  task_.rethrow();
  return true;
}

/// Suspends a task until a condition holds: `co_await Until([&] { return …; })`. `Ready` may report
/// by `awaited()` what must happen before.
template <class Ready>
class [[nodiscard]] Until {
 public:
  explicit Until(Ready ready) : ready_(std::move(ready)) {}

  bool await_ready() const { return false; }
  bool await_suspend(Task::Coroutine coroutine) const {
    Strand& strand = *coroutine.promise().strand;
    if (++strand.turn_ <= Strand::kTurn && ready_()) return false;
    strand.suspend(coroutine, &Until::is_ready, &Until::describe, this);
    return true;
  }
  void await_resume() const {}

 private:
  static bool is_ready(const void* self) { return static_cast<const Until*>(self)->ready_(); }
  static Awaited describe(const void* self) {
    if constexpr (requires(const Ready& ready) { ready.awaited(); }) {
      return static_cast<const Until*>(self)->ready_.awaited();
    } else {
      return {};
    }
  }

  Ready ready_;
};

/// Gives other tasks a turn in the middle of long work that need not wait for anything.
class [[nodiscard]] GiveWay {
 public:
  bool await_ready() const { return false; }
  void await_suspend(Task::Coroutine coroutine) const {
    Strand& strand = *coroutine.promise().strand;
    strand.suspend(
        coroutine, [](const void*) { return true; }, [](const void*) { return Awaited{}; },
        nullptr);
    strand.turn_ = Strand::kTurn + 1;
  }
  void await_resume() const {}
};

}  // namespace sirtaki
