#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "collectives/kinds.h"
#include "engine/requests/request.h"
#include "transport/memory/rank_totals.h"

namespace sirtaki {

/// Counts a rank's operations and steps in shared memory. One thread at a time calls it, under the
/// agreement's lock, so it adds without atomic instructions; `failed` may be called from any.
///
/// A step is the time from an operation to the next of its name. That name is the first one found
/// to return; a name that returns before it does takes its place.
class Tally {
 public:
  explicit Tally(RankTotals& totals) : totals_(totals) {
    totals.began_ns.store(now_ns(), std::memory_order_relaxed);
  }

  void submitted(const Request& request, uint64_t bytes, int64_t now_ns) {
    RankTotals::OfKind& of = totals_.kinds[static_cast<size_t>(request.kind)];
    add(of.operations, uint64_t{1});
    add(of.bytes, bytes);
    if (!request.name.empty()) look_for_step(request, now_ns);
  }
  /// An operation awaits other ranks from now on, and does so no longer.
  void waits(int64_t now_ns) {
    if (waiting_++ == 0) totals_.waits_since_ns.store(now_ns, std::memory_order_relaxed);
  }
  void heard(int64_t now_ns) {
    if (--waiting_ > 0) return;
    add(totals_.waited_ns, now_ns - totals_.waits_since_ns.load(std::memory_order_relaxed));
    totals_.waits_since_ns.store(0, std::memory_order_release);
  }
  void failed(size_t kind) {
    totals_.kinds[kind % RankTotals::kMostKinds].errors.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  static_assert(kKindCount <= RankTotals::kMostKinds);

  struct Seen {
    Kind kind = Kind::kBarrier;
    std::string name{};
    int64_t at_ns = 0;

    bool is(const Request& other) const { return other.kind == kind && other.name == name; }
  };

  template <class Number>
  static void add(std::atomic<Number>& to, Number amount) {
    to.store(to.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }

  void look_for_step(const Request& request, int64_t now_ns) {
    if (mark_.is(request)) return end_step(now_ns);
    ++since_mark_;
    if (candidate_.is(request)) {
      std::swap(mark_, candidate_);
      return end_step(now_ns);
    }
    // Brent's way to find a cycle: a candidate at each power of two finds one of any length.
    if (!std::has_single_bit(since_mark_)) return;
    candidate_.kind = request.kind;
    candidate_.name = request.name;
    candidate_.at_ns = now_ns;
  }

  void end_step(int64_t now_ns) {
    const int64_t took_ns = now_ns - std::exchange(mark_.at_ns, now_ns);
    size_t bucket = 0;
    while (took_ns > RankTotals::kStepBounds[bucket]) ++bucket;
    add(totals_.steps[bucket], uint64_t{1});
    add(totals_.steps_ns, took_ns);
    since_mark_ = 0;
    candidate_.name.clear();
  }

  RankTotals& totals_;
  int waiting_ = 0;
  Seen mark_, candidate_;
  uint64_t since_mark_ = 0;
};

}  // namespace sirtaki
