#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "transport/memory/region.h"

namespace sirtaki {

/// Counts a user's thread as blocked in a call while this lives. Its clock has ticks of some
/// milliseconds: a few of many short waits count for a whole tick, and most for none.
class Exposed {
 public:
  explicit Exposed(RankBlock& block) : block_(block), begun_ns_(recent_ns()) {
    note(block);
    block.waits_since_ns.store(begun_ns_, std::memory_order_relaxed);
  }
  ~Exposed() {
    const int64_t now = recent_ns();
    if (now != begun_ns_) block_.waited_ns.fetch_add(now - begun_ns_, std::memory_order_relaxed);
    block_.waits_since_ns.store(0, std::memory_order_relaxed);
  }
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;

  /// Counts a request for a result, which may have been there already.
  static void note(RankBlock& block) {
    const uint64_t waits = block.waits.load(std::memory_order_relaxed);
    block.waits.store(waits + 1, std::memory_order_relaxed);  // losing one does no harm
  }

 private:
  RankBlock& block_;
  const int64_t begun_ns_;
};

/// Total seconds until now in which a RankBlock's threads were blocked, each for itself, or some of
/// a RankTotals' operations waited.
template <class Counts>
double waited_seconds(const Counts& of, int64_t now_ns) {
  const int64_t since = of.waits_since_ns.load(std::memory_order_acquire);
  int64_t waited = of.waited_ns.load(std::memory_order_acquire);
  if (since > 0 && since == of.waits_since_ns.load(std::memory_order_acquire)) {
    waited += std::max<int64_t>(0, now_ns - since);
  }
  return static_cast<double>(std::max<int64_t>(0, waited)) * 1e-9;
}

}  // namespace sirtaki
