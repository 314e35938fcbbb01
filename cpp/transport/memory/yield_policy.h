#pragma once

#include <algorithm>
#include <cstdint>

namespace sirtaki {

/// Whether a waiting thread should yield its core repeatedly instead of sleeping.
///
/// If ranks take turns on a core, one that yields gets it back as soon as the others have done
/// their part, without being woken. But a thread that computes beside them keeps it for a whole
/// slice, where a wake-up would interrupt it; and ranks between which the kernel divides time by
/// groups (sessions, containers) only waste it. So yielding has an account: it pays for its time,
/// earns the cost of a sleep whenever it ends the wait, and gets a small share of all time, so that
/// it is tried again. A plain state machine without a clock.
class YieldPolicy {
 public:
  static constexpr int64_t kSleepNs = 25'000;  ///< the cost of a sleep and its wake-up
  static constexpr int64_t kMostNs = 5'000'000;
  static constexpr int64_t kDebtNs = 20'000'000;  ///< a larger debt is forgotten
  static constexpr int64_t kShare = 50;           ///< one part in this many of all time

  bool may_yield(int64_t now_ns) {
    if (now_ns > paid_ns_) balance_ns_ += (now_ns - paid_ns_) / kShare;
    balance_ns_ = std::min(balance_ns_, kMostNs);
    paid_ns_ = now_ns;
    return balance_ns_ > 0;
  }

  /// Records that a waiting thread yielded from `before_ns` to `after_ns`; `came`: that ended the
  /// wait.
  void yielded(int64_t before_ns, int64_t after_ns, bool came) {
    balance_ns_ += (came ? kSleepNs : 0) - (after_ns - before_ns);
    balance_ns_ = std::clamp(balance_ns_, -kDebtNs, kMostNs);
    paid_ns_ = after_ns;
  }

 private:
  int64_t balance_ns_ = kMostNs;
  int64_t paid_ns_ = 0;  ///< until when it has received its share
};

}  // namespace sirtaki
