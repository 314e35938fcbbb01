#pragma once

#include <poll.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/parking.h"
#include "transport/memory/region.h"
#include "transport/memory/yield_policy.h"

namespace sirtaki {

/// How long a driver polls before it sleeps. Sleeping costs a wake-up (about 5 us) later; polling
/// costs a core that a computing thread may need now.
struct SpinPolicy {
  int64_t caller_ns = 200'000;  ///< for a thread that is blocked in a call anyway
  int64_t engine_ns = 5'000;    ///< for the engine thread: the rank's main thread wants the core
};

/// What an idle driver sleeps for.
struct Sleep {
  static constexpr int kNobody = -1;

  uint32_t messages = 0;       ///< News besides kData
  bool data = false;           ///< a peer's counter
  int peer = kNobody;          ///< the rank whose counter alone is awaited, by its place
  std::vector<pollfd> polled;  ///< these descriptors too

  void await_data(int place) {
    peer = data && place != peer ? kNobody : place;
    data = true;
  }
  /// The form that is written into the rank's block.
  uint32_t news() const {
    const uint32_t whose = peer == kNobody ? RankBlock::kAnyPeer : static_cast<uint32_t>(peer);
    const uint32_t how = polled.empty() ? 0U : kPolls;
    return data ? messages | how | kData | whose << RankBlock::kPeerShift : messages | how;
  }
};

/// Lets one rank's driver sleep and wake its peers' drivers, across the processes of a host. Peers
/// are identified by their place on the host.
class Doorbell {
 public:
  Doorbell(std::shared_ptr<Region> region, int place, SpinPolicy policy)
      : region_(std::move(region)), place_(place), policy_(policy) {}

  /// Wakes `peer`'s driver if it sleeps for such news. The caller must have stored the news before,
  /// with sequential consistency.
  void ring(int peer, News news) const {
    RankBlock& block = region_->rank(peer);
    ring(peer, block.engine, news);
    ring(peer, block.caller, news);
  }

  /// The same for this rank's own driver, from another thread.
  void ring_own(News news) const { ring(place_, news); }

  /// Wakes this rank's engine thread, whatever it sleeps for.
  void ring_engine() const;

  /// Wakes a peer's engine thread to see whether its process runs at all; returns how often that
  /// thread has been awake so far.
  uint32_t knock(int peer) const;

  /// Declares which thread drives from now on, and so which one sleeps and how long it polls first.
  void drive_as_caller(bool caller) { caller_ = caller; }

  /// Where the engine thread sleeps.
  Parking& engine() const { return region_->rank(place_).engine; }

  /// Returns once `ready()` is true: polls for a while, unless a peer needs the core, then sleeps
  /// for what `prepare()` returns each time. Throws PeerLost if the world was aborted and `ready()`
  /// is still false. Also returns soon after `until_ns`.
  template <class Ready, class Prepare>
  void wait(Ready ready, Prepare prepare, int64_t until_ns = kForever) const {
    if (ready()) return;
    const int64_t spin_ns = caller_ ? policy_.caller_ns : policy_.engine_ns;
    const int64_t limit = std::min(until_ns, now_ns() + spin_ns);
    do {
      for (int i = 0; i < kPollsPerClock; ++i) {
        if (ready()) return;
        cpu_relax();
      }
      if (aborted()) {
        if (ready()) return;
        check_abort();
      }
    } while (now_ns() < limit && !shares_core());
    if (!yield_until(ready)) sleep_until(ready, prepare, until_ns);
  }

  /// The average number of times that a rank of this host slept for a peer's counter; wraps around.
  uint32_t data_sleeps() const;

  /// Whether another rank's driver last waited on this thread's core: a poller may keep the rank
  /// that it waits for from running.
  bool shares_core() const;

  bool aborted() const { return region_->lost_rank() >= 0; }

  /// Throws if the world was aborted; the error names the lost rank.
  void check_abort() const;

  /// Ends the world for every rank of the host: pending and later waits fail and name the lost rank
  /// of the world.
  void abort(const Loss& loss) const;
  void abort(int lost_rank) const { abort(Loss{lost_rank}); }
  /// Aborts and throws; the error names the rank that was lost first.
  [[noreturn]] void end_world(const Loss& loss) const;

 private:
  static constexpr int kPollsPerClock = 16;
  static constexpr int64_t kSleepNs = 100'000'000;  // by then a missed abort is noticed
  static constexpr int64_t kYieldNs = 100'000;

  void ring(int peer, Parking& parking, News news) const {
    const uint32_t wanted = parking.wants();
    if ((wanted & news) == 0) return;
    // Only the awaited peer wakes a sleeper: if there are more ranks than cores, waking it only to
    // find that it must wait for another rank costs most.
    const uint32_t awaited = wanted >> RankBlock::kPeerShift;
    if (news == kData && awaited != static_cast<uint32_t>(place_) && awaited != RankBlock::kAnyPeer)
      return;
    (wanted & kPolls) != 0 ? region_->event_descriptors().ring(peer) : parking.wake();
  }

  /// If more ranks than cores take turns, yields the core for a while; true if that was enough.
  template <class Ready>
  bool yield_until(Ready ready) const {
    if (!caller_ || policy_.caller_ns != 0) return false;
    const int64_t from = now_ns();
    if (!yield_policy_.may_yield(from)) return false;
    int64_t now = from;
    bool came = false;
    while (!came && !aborted() && now - from < kYieldNs) {
      machine::yield();
      came = ready();
      now = now_ns();
    }
    yield_policy_.yielded(from, now, came);
    return came;
  }

  void sleep_in_poll(const Sleep& sleep, int64_t limit_ns) const;

  template <class Ready, class Prepare>
  void sleep_until(Ready ready, Prepare prepare, int64_t until_ns) const {
    Parking& parking = caller_ ? region_->rank(place_).caller : engine();
    for (;;) {
      const Sleep sleep = prepare();
      const int64_t left_ns = until_ns == kForever ? kSleepNs : until_ns - now_ns();
      const int64_t limit_ns = std::clamp<int64_t>(left_ns, 1, kSleepNs);
      const Parking::Wakeups seen = parking.wakeups();
      parking.park(sleep.news());
      if (!ready() && !aborted()) {
        if (sleep.polled.empty()) {
          auto& sleeps = region_->rank(place_).data_sleeps;
          if (sleep.data) sleeps.fetch_add(1, std::memory_order_relaxed);
          parking.sleep(seen, limit_ns);
        } else {
          sleep_in_poll(sleep, limit_ns);
        }
      }
      parking.unpark();
      if (ready() || (until_ns != kForever && now_ns() >= until_ns)) return;
      check_abort();
    }
  }

  std::shared_ptr<Region> region_;
  int place_;
  SpinPolicy policy_;
  bool caller_ = false;
  mutable YieldPolicy yield_policy_;  ///< the driver's
};

}  // namespace sirtaki
