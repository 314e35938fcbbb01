#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace sirtaki {

/// How often members ask each other which data lie in their shared heaps: rarely for operations
/// like those of which no data did. A plain state machine, the same on all members of a group.
class HandshakePolicy {
 public:
  static constexpr uint32_t kMostSkipped = 15;
  static constexpr size_t kLeast = 1 << 20;  ///< below this a handshake costs more than it saves
  static constexpr size_t kLarge = 4 << 20;  ///< for these the time of a handshake does not matter

  /// Whether to meet for an operation of this kind and size.
  bool is_due(uint32_t kind, size_t bytes) {
    if (bytes < kLeast || bytes >= kLarge) return bytes >= kLarge;
    Like& like = like_[index(kind, bytes)];
    if (like.skip == 0) return true;
    --like.skip;
    return false;
  }
  /// Records the result of a handshake.
  void met(uint32_t kind, size_t bytes, bool shared) {
    Like& like = like_[index(kind, bytes)];
    like.pause = shared ? 0 : std::min(2 * like.pause + 1, kMostSkipped);
    like.skip = like.pause;
  }

 private:
  struct Like {
    uint32_t skip = 0;
    uint32_t pause = 0;
  };
  static constexpr size_t kLikes = 64;

  static size_t index(uint32_t kind, size_t bytes) {
    return (bytes * 0x9e3779b97f4a7c15u + kind * 0x85ebca6bu) >> 58;
  }

  std::array<Like, kLikes> like_{};
};

}  // namespace sirtaki
