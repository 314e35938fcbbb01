#pragma once

#include <algorithm>
#include <cstdint>

namespace sirtaki {

/// Whether who waits had better give its core away, again and again, than sleep.
///
/// Where ranks take turns on a core, one that yields has it back as soon as the others have done
/// their part, without being woken. Who computes beside them keeps it for a whole slice, though,
/// where waking would interrupt it; and ranks between which the kernel shares out time by groups
/// (sessions, containers) only waste it. So yielding lives on an account: it pays for the time that
/// it takes, earns what a sleep would have cost wherever it ends the wait, and gets a small share
/// of all time, so that it is tried again. A plain state machine without a clock.
class YieldPolicy {
 public:
  static constexpr int64_t kSleepNs = 25'000;  ///< what a sleep and its end cost
  static constexpr int64_t kMostNs = 5'000'000;
  static constexpr int64_t kDebtNs = 20'000'000;  ///< forgotten beyond this
  static constexpr int64_t kShare = 50;           ///< of all time: one in so many

  bool may_yield(int64_t now_ns) {
    if (now_ns > paid_ns_) balance_ns_ += (now_ns - paid_ns_) / kShare;
    balance_ns_ = std::min(balance_ns_, kMostNs);
    paid_ns_ = now_ns;
    return balance_ns_ > 0;
  }

  /// Who waited yielded from `before_ns` to `after_ns`, and `came` says whether that ended the
  /// wait.
  void yielded(int64_t before_ns, int64_t after_ns, bool came) {
    balance_ns_ += (came ? kSleepNs : 0) - (after_ns - before_ns);
    balance_ns_ = std::clamp(balance_ns_, -kDebtNs, kMostNs);
    paid_ns_ = after_ns;
  }

 private:
  int64_t balance_ns_ = kMostNs;
  int64_t paid_ns_ = 0;  ///< until when it got its share
};

}  // namespace sirtaki
