#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/float_state.h"
#include "engine/agreement.h"
#include "engine/execution/runner.h"
#include "engine/rank_context.h"

namespace sirtaki {

/// Threads that sleep until an operation is done because another thread drives; when that one
/// leaves, one of them must drive.
class Sleepers {
 public:
  bool any() const { return count_.load() > 0; }

  void nudge() {
    if (!any()) return;
    const std::lock_guard lock(mutex_);
    for (Handle* handle : handles_) handle->nudge();
  }

  /// A thread that may sleep, as long as this lives.
  class Entry {
   public:
    Entry(Sleepers& sleepers, Handle& handle) : sleepers_(sleepers), handle_(&handle) {
      const std::lock_guard lock(sleepers_.mutex_);
      sleepers_.handles_.push_back(handle_);
      sleepers_.count_.fetch_add(1);
    }
    ~Entry() {
      const std::lock_guard lock(sleepers_.mutex_);
      auto& handles = sleepers_.handles_;
      handles.erase(std::find(handles.begin(), handles.end(), handle_));
      sleepers_.count_.fetch_sub(1);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Sleepers& sleepers_;
    Handle* handle_;
  };

 private:
  std::mutex mutex_;
  std::vector<Handle*> handles_;
  std::atomic<int> count_{0};
};

/// Makes progress for its rank: decides which thread does so, when it sleeps and what wakes it.
///
/// One thread at a time has the driver's role: a thread that waits for a handle, if there is one
/// (so a blocking call costs no thread switch), else the engine's own thread, which sleeps until
/// rung. README.md has the rules for every wait, here and in the collectives.
class Driver {
 public:
  class Listener {
   public:
    /// An exception in a round ends the world. Called with the role.
    virtual void fail(const std::exception& error) = 0;
    /// On rank 0 in the engine thread, periodically, whichever thread drives.
    virtual void look_around(int64_t now_ns) = 0;

   protected:
    ~Listener() = default;
  };

  Driver(RankContext& context, Agreement& agreement, Runner& runner, Listener& listener)
      : context_(context), agreement_(agreement), runner_(runner), listener_(listener) {}
  ~Driver() {
    if (thread_.joinable()) stop();  // the engine has ended by an exception
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// The driver's role, which it gives back at its end.
  class Role {
   public:
    explicit Role(Driver& driver) : driver_(driver) {}
    ~Role() { driver_.leave(); }
    Role(const Role&) = delete;
    Role& operator=(const Role&) = delete;

   private:
    Driver& driver_;
  };

  /// The role, if no thread has it and the engine has not ended.
  std::optional<Role> try_role() {
    if (!role_.try_lock()) return std::nullopt;
    return role_unless_stopped();
  }
  /// The same, but waits for the thread that has it.
  std::optional<Role> await_role() {
    role_.lock();
    return role_unless_stopped();
  }

  /// Does work of the driver, with its role and the same floating-point state in every thread; an
  /// exception in it ends the world.
  template <class Work>
  void guard(Work work);
  /// Drives, with the role, until `done()` or until `limit_ns`: polling reads the clock less often
  /// than memory.
  template <class Done>
  void drive(bool caller, int64_t limit_ns, Done done);
  /// Waits until the handle is done, as the driver or while another thread drives; false if it is
  /// not at `limit_ns`.
  bool wait(Handle& handle, int64_t limit_ns);

  /// For a scheduler in place of threads: one round. Returns until when nothing needs to be done
  /// unless this rank is rung; `now_ns` if there is more to do.
  int64_t step(int64_t now_ns);

  /// How often work has progressed; from any thread.
  uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }

  /// The engine's own thread.
  void start();
  /// Ends it; no thread drives any more.
  void stop();
  bool stopped() const { return stopped_.load(); }
  /// Does work before `stop` begins; false, without doing it, if `stop` has begun.
  template <class Work>
  bool before_stop(Work work);
  bool is_own_thread() const { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  std::optional<Role> role_unless_stopped() {
    if (keeps_lock()) return std::optional<Role>(std::in_place, *this);
    return std::nullopt;
  }
  bool keeps_lock();
  template <class Done>
  bool round(Done done);
  bool has_work() { return runner_.is_ready() || agreement_.has_work(); }
  Sleep sleep_for();
  void leave();
  void run();
  void take_turn();
  bool looks_due(int64_t now_ns) const { return context_.rank == 0 && now_ns >= look_ns_; }

  RankContext& context_;
  Agreement& agreement_;
  Runner& runner_;
  Listener& listener_;
  Sleepers sleepers_;
  std::atomic<uint64_t> moves_{0};
  std::atomic<bool> stopped_{false};
  std::mutex stopping_;  ///< held while that is set, and by work that must be done before
  std::thread thread_;

  std::mutex role_;      ///< held by the driver; guards the runner and the members below
  int64_t look_ns_ = 0;  ///< when to call `look_around`
  bool looks_ = false;   ///< that time has come
};

template <class Work>
void Driver::guard(Work work) {
  const FloatState floats;
  try {
    work();
  } catch (const std::exception& error) {
    listener_.fail(error);
  }
}

template <class Work>
bool Driver::before_stop(Work work) {
  const std::lock_guard lock(stopping_);
  if (stopped()) return false;
  work();
  return true;
}

/// Does what needs no waiting; false if that was nothing.
template <class Done>
bool Driver::round(Done done) {
  const bool moved = runner_.advance_messages();  // needs no lock
  if (moved && done()) return true;
  agreement_.advance();
  const bool went_on = runner_.advance_batches() || moved;
  if (went_on) moves_.store(moves() + 1, std::memory_order_relaxed);  // only the driver writes it
  return went_on;
}

template <class Done>
void Driver::drive(bool caller, int64_t limit_ns, Done done) {
  Doorbell& doorbell = context_.doorbell;
  doorbell.drive_as_caller(caller);
  doorbell.engine().unpark();
  guard([&] {
    doorbell.check_abort();
    while (!done() && !context_.callbacks.waiting()) {
      const bool went_on = round(done);
      if (went_on && done()) break;
      if (limit_ns != kForever && now_ns() >= limit_ns) break;
      if (went_on) continue;
      if (agreement_.has_backlog()) machine::yield();  // to the ring's reader
      doorbell.check_abort();  // waiting checks for work first, and a backlog is always work
      doorbell.wait([&] { return done() || has_work(); }, [&] { return sleep_for(); }, limit_ns);
    }
  });
}

}  // namespace sirtaki
