#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/agreement.h"
#include "engine/execution/runner.h"
#include "engine/rank_context.h"

namespace sirtaki {

/// Threads that sleep until an operation is done because another one drives; when that one leaves,
/// one of them is to drive.
class Sleepers {
 public:
  bool any() const { return count_.load() > 0; }

  void nudge() {
    if (!any()) return;
    const std::lock_guard lock(mutex_);
    for (Handle* handle : handles_) handle->nudge();
  }

  /// A thread that may sleep, for as long as this lives.
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

/// Makes progress for its rank: who does, when it sleeps and what wakes it.
///
/// One thread at a time has the driver's role: a thread that waits for a handle where there is one
/// (so a blocking call costs no thread switch), else the engine's own, which sleeps until rung.
/// Which rules hold of every wait, here and in the collectives, says README.md.
class Driver {
 public:
  struct Events {
    /// What a round threw ends the world. Called while it is handled, with the role.
    std::function<void()> failed;
    /// On rank 0 in the engine thread, now and then, whoever drives.
    std::function<void(int64_t now_ns)> looks_around;
  };

  Driver(RankContext& context, Agreement& agreement, Runner& runner, Events events);

  /// Holds the role, which must have been taken, and gives it back.
  class Role {
   public:
    explicit Role(Driver& driver) : driver_(driver) {}
    ~Role() { driver_.leave(); }
    Role(const Role&) = delete;
    Role& operator=(const Role&) = delete;

   private:
    Driver& driver_;
  };

  /// Takes the role if nobody has it and the engine has not ended.
  bool try_role();
  /// The same, but waits for who has it.
  bool await_role();
  /// Waits for who has it, ended or not.
  void lock_role() { role_.lock(); }

  /// Does work of the driver's, with its role; what it throws ends the world.
  template <class Work>
  void guard(Work work);
  /// Goes on, with the role, until `done()` or until `limit_ns` has come: who polls looks at the
  /// clock less often than at memory.
  template <class Done>
  void drive(bool caller, int64_t limit_ns, Done done);
  /// Goes on until the handle is done, as the driver or while another thread is; false if it is not
  /// at `limit_ns`.
  bool wait(Handle& handle, int64_t limit_ns);

  /// For a scheduler in place of threads: one round. Returns until when nothing needs to be done
  /// unless this rank is rung; `now_ns` if there is more to do.
  int64_t step(int64_t now_ns);

  /// How often something has been moved on; from any thread.
  uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }

  /// The engine's own thread.
  void start();
  /// Ends it; nobody drives any more.
  void stop();
  bool stopped() const { return stopped_.load(); }
  bool is_own_thread() const { return thread_.get_id() == std::this_thread::get_id(); }
  /// In a forked child.
  void abandon() { new std::thread(std::move(thread_)); }

 private:
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
  const Events events_;
  Sleepers sleepers_;
  std::atomic<uint64_t> moves_{0};
  std::atomic<bool> stopped_{false};
  std::thread thread_;

  std::mutex role_;      ///< held by whoever drives; guards the runner and what follows
  int64_t look_ns_ = 0;  ///< when to look around at the latest
  bool looks_ = false;   ///< that time has come
};

template <class Work>
void Driver::guard(Work work) {
  try {
    work();
  } catch (...) {
    events_.failed();
  }
}

/// Does what can be done without waiting; false if that was nothing.
template <class Done>
bool Driver::round(Done done) {
  const bool moved = runner_.advance_messages();  // needs no lock
  if (moved && done()) return true;
  agreement_.advance();
  const bool went_on = runner_.advance_batches() || moved;
  if (went_on) moves_.store(moves() + 1, std::memory_order_relaxed);  // only the driver writes
  return went_on;
}

template <class Done>
void Driver::drive(bool caller, int64_t limit_ns, Done done) {
  Doorbell& doorbell = context_.doorbell;
  doorbell.drive_as_caller(caller);
  doorbell.wake_up();
  guard([&] {
    doorbell.check_abort();
    while (!done() && !context_.callbacks.waiting()) {
      const bool went_on = round(done);
      if (went_on && done()) break;
      if (limit_ns != kForever && now_ns() >= limit_ns) break;
      if (went_on) continue;
      if (agreement_.has_backlog()) machine::yield();  // to whom the ring belongs
      doorbell.check_abort();  // waiting looks for work first, and a backlog is always work
      doorbell.wait([&] { return done() || has_work(); }, [&] { return sleep_for(); }, limit_ns);
    }
  });
}

}  // namespace sirtaki
