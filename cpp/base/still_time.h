#pragma once

#include <algorithm>
#include <cstdint>

namespace sirtaki {

/// Detects what does not go on: the time for which something has not moved, as seen by somebody who
/// looks from time to time. Each limit on a wait or on silence is one on such a time.
class StillTime {
 public:
  /// Notes a look, and whether nothing has moved since the last one. The time between the two
  /// counts up to `most_ns`: who was stopped itself, perhaps with all its peers, did not wait
  /// meanwhile.
  int64_t look(bool still, int64_t now_ns, int64_t most_ns) {
    const bool goes_on = still && looked_ns_ != 0;
    still_ns_ = goes_on ? still_ns_ + std::min(now_ns - looked_ns_, most_ns) : 0;
    looked_ns_ = now_ns;
    return still_ns_;
  }
  void forget() { looked_ns_ = 0; }
  int64_t looked_ns() const { return looked_ns_; }

 private:
  int64_t looked_ns_ = 0;  ///< 0: never
  int64_t still_ns_ = 0;
};

}  // namespace sirtaki
