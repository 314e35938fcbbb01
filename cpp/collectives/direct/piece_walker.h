#pragma once

#include "collectives/direct/lockstep.h"
#include "transport/group.h"

namespace sirtaki {

/// Members that write a slice each write whole pages of a stream.
inline constexpr size_t kPage = 4096;

/// Walks parts of streams in pieces that stay in the cache for as long as they are worked on, and
/// lets others have their turn now and then.
class PieceWalker {
 public:
  explicit PieceWalker(Group& group) : group_(group) {}

  FramePool& frame_pool() const { return group_.frame_pool(); }

  /// Awaited, visits as `Lockstep` does.
  template <class Visit>
  Task walk(Ranges parts, std::vector<const Segments*> streams, Visit visit) {
    Lockstep lockstep(std::move(streams));
    size_t done = 0;
    for (const Range& part : parts.list()) {
      for (size_t at = part.begin; at < part.end; at += kPiece) {
        const Range piece{at, std::min(at + kPiece, part.end)};
        lockstep.walk(piece, visit);
        done += piece.bytes();
        if (done < kTurn) continue;
        done = 0;
        co_await group_.give_way();
      }
    }
  }

 private:
  static constexpr size_t kPiece = 64 << 10;
  static constexpr size_t kTurn = 1 << 20;

  Group& group_;
};

}  // namespace sirtaki
