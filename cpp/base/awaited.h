#pragma once

#include <algorithm>
#include <cstdint>

namespace sirtaki {

/// The action of another rank that an operation in progress waits for.
enum class Phase : uint8_t {
  kNone,   ///< nothing in particular
  kWrite,  ///< a rank of this host writes a chunk
  kRead,   ///< a rank of this host finishes reading a chunk
  kLeave,  ///< a rank of this host leaves an earlier operation, whose memory is needed
  kSend,   ///< a rank of another host sends bytes
  kTake,   ///< a rank of another host receives bytes
};
inline constexpr auto kPhases = static_cast<int>(Phase::kTake) + 1;

constexpr const char* name(Phase phase) {
  constexpr const char* kNames[kPhases] = {"", "write", "read", "leave", "send", "take"};
  return kNames[static_cast<int>(phase)];
}

/// The event that an operation in progress waits for now.
struct Awaited {
  static constexpr int kNobody = -1;
  static constexpr uint32_t kNoChunk = UINT32_MAX;

  Phase phase = Phase::kNone;
  int rank = kNobody;   ///< the rank that must act, numbered in the world
  int place = kNobody;  ///< its place, where it is on this host
  uint32_t chunk = kNoChunk;

  bool operator==(const Awaited&) const = default;
};

/// The time for which something has not moved, as seen by somebody who looks from time to time.
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
