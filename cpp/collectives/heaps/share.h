#pragma once

#include <utility>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/heaps/handshake.h"
#include "collectives/heaps/lockstep.h"

namespace sirtaki {

/// Members that each write a slice write whole pages of a stream.
inline constexpr size_t kPage = 4096;

/// Visits parts of streams, like `Lockstep`, in pieces that stay in the cache while they are
/// processed, and gives others a turn now and then.
template <class Visit>
Task walk_pieces(Group& group, const Ranges& parts, std::vector<const Segments*> streams,
                 Visit& visit) {
  constexpr size_t kPiece = 64 << 10;
  constexpr size_t kTurn = 1 << 20;
  Lockstep lockstep(std::move(streams));
  size_t done = 0;
  for (const Range& part : parts.list()) {
    for (size_t at = part.begin; at < part.end; at += kPiece) {
      const Range piece{at, std::min(at + kPiece, part.end)};
      lockstep.walk(piece, visit);
      done += piece.bytes();
      if (done < kTurn) continue;
      done = 0;
      co_await group.give_way();
    }
  }
}

/// One member's part of a collective in shared heaps.
struct Share {
  struct Job {
    Ranges parts;
    std::vector<const Segments*> streams;
  };
  std::vector<Job> jobs;
  size_t bytes = 0;  ///< bytes that all members move this way

  /// Adds this member's slice of what all members divide among them.
  void divide(const Group& group, const Ranges& shared, std::vector<const Segments*> streams) {
    bytes += shared.bytes();
    const Range slice = slice_of(shared.bytes(), group.size(), group.rank(), kPage);
    jobs.push_back({shared.part(slice), std::move(streams)});
  }
};

/// Shows the others the streams `shows`, of which they write number `written` (-1: none). If all
/// can access what they see, `plan(handshake)` returns this member's share, whose pieces are
/// visited.
template <class Plan, class Visit>
Task share(Group& group, const Op& op, std::vector<const Segments*> shows, int written, Plan plan,
           Visit visit) {
  Handshake handshake(group, op.kind, bytes_in_slots(op.kind, op.longest, group.size()));
  co_await handshake.meet(std::move(shows), written);
  Share own = handshake.declined() ? Share{} : plan(std::as_const(handshake));
  if (own.bytes == 0) {
    handshake.leave();
    co_return;
  }
  for (Share::Job& job : own.jobs) {
    co_await walk_pieces(group, job.parts, std::move(job.streams), visit);
  }
  co_await handshake.part(own.bytes);
}

/// The streams for the other members, by number; an empty one for this member.
inline std::vector<const Segments*> for_others(const Group& group, const Streams& in) {
  static const Segments kNothing;
  std::vector<const Segments*> streams;
  for (const Segments& stream : in) streams.push_back(&stream);
  streams[static_cast<size_t>(group.rank())] = &kNothing;
  return streams;
}

}  // namespace sirtaki
