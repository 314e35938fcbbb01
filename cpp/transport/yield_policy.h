#pragma once

#include <algorithm>
#include <cstdint>

namespace sirtaki {

/// Whether who waits had better give its core away for a moment than sleep.
///
/// Where ranks take turns on a core, one that yields has it back as soon as the others have done
/// their part, without being woken. Who computes beside them keeps it for a whole slice, though,
/// where waking would interrupt it: after a long yield there are none for a while, and if that goes
/// on, for longer and longer. A plain state machine without a clock.
class YieldPolicy {
 public:
  static constexpr int64_t kLongNs = 500'000;  ///< no rank needs so long for its part
  static constexpr int64_t kLeastPauseNs = 100'000'000;
  static constexpr int64_t kMostPauseNs = 30'000'000'000;

  bool may_yield(int64_t now_ns) const { return now_ns >= from_ns_; }

  /// A yield took from `before_ns` to `after_ns`.
  void yielded(int64_t before_ns, int64_t after_ns) {
    if (after_ns - before_ns < kLongNs) return;
    const bool again = before_ns - from_ns_ < pause_ns_;
    pause_ns_ = again ? std::min(2 * pause_ns_, kMostPauseNs) : kLeastPauseNs;
    from_ns_ = after_ns + pause_ns_;
  }

 private:
  int64_t pause_ns_ = 0;
  int64_t from_ns_ = 0;
};

}  // namespace sirtaki
