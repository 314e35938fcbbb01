#pragma once

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

}  // namespace sirtaki
