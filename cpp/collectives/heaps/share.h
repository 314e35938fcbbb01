#pragma once

#include <utility>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/heaps/lockstep.h"
#include "collectives/heaps/meeting.h"

namespace sirtaki {

/// Members that write a slice each write whole pages of a stream.
inline constexpr size_t kPage = 4096;

/// Visits parts of streams, as `Lockstep` does, in pieces that stay in the cache for as long as
/// they are worked on, and lets others have their turn now and then.
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

/// What one member does of a collective in shared heaps.
struct Share {
  struct Job {
    Ranges parts;
    std::vector<const Segments*> streams;
  };
  std::vector<Job> jobs;
  size_t bytes = 0;  ///< that all members move so

  /// Adds its slice of what all members divide among them.
  void divide(const Group& group, const Ranges& shared, std::vector<const Segments*> streams) {
    bytes += shared.bytes();
    const Range slice = slice_of(shared.bytes(), group.size(), group.rank(), kPage);
    jobs.push_back({shared.part(slice), std::move(streams)});
  }
};

/// Shows the others what `shows` has, of which they write number `written` (-1: none). If all can
/// touch what they see, `plan(meeting)` gives this member's share, whose pieces are visited.
template <class Plan, class Visit>
Task share(Group& group, const Op& op, std::vector<const Segments*> shows, int written, Plan plan,
           Visit visit) {
  Meeting meeting(group, op.kind, bytes_in_slots(op.kind, op.longest, group.size()));
  co_await meeting.meet(std::move(shows), written);
  Share own = meeting.declined() ? Share{} : plan(std::as_const(meeting));
  if (own.bytes == 0) {
    meeting.leave();
    co_return;
  }
  for (Share::Job& job : own.jobs) {
    co_await walk_pieces(group, job.parts, std::move(job.streams), visit);
  }
  co_await meeting.part(own.bytes);
}

/// The streams for the other members, by their numbers; none for this one.
inline std::vector<const Segments*> for_others(const Group& group, const Streams& in) {
  static const Segments kNothing;
  std::vector<const Segments*> streams;
  for (const Segments& stream : in) streams.push_back(&stream);
  streams[static_cast<size_t>(group.rank())] = &kNothing;
  return streams;
}

}  // namespace sirtaki
