#include <cstring>

#include "collectives/cursor.h"
#include "collectives/direct/direct.h"
#include "collectives/direct/lockstep.h"
#include "collectives/direct/meeting.h"
#include "collectives/direct/piece_walker.h"

namespace sirtaki {
namespace {

/// To all places behind the first.
void copy(const std::vector<std::byte*>& at, size_t bytes, size_t) {
  for (size_t to = 1; to < at.size(); ++to) {
    if (at[to] != at[0]) std::memcpy(at[to], at[0], bytes);
  }
}

/// Fetches the parts of `theirs` that are shown.
Task fetch(Group& group, const Ranges& parts, const Segments& theirs, const Segments& to) {
  std::vector<const Segments*> streams{&theirs, &to};
  PieceWalker pieces(group);
  co_await pieces.walk(parts, std::move(streams), copy);
}

}  // namespace

// Each member copies a slice of what is shared to all who receive, so that all cores have a part.
Task direct_broadcast(Group& group, const Op& op, const Segments& in, const Segments& out) {
  const bool sends = group.rank() == op.root;
  Meeting meeting(group, op, op.longest);
  std::vector<const Segments*> shows{sends ? &in : &out};
  co_await meeting.meet(std::move(shows), sends ? -1 : 0);
  if (meeting.declined()) {
    meeting.leave();
    co_await slots_broadcast(group, op, in, out);
    co_return;
  }
  std::vector<const Segments*> streams{&meeting.seen(op.root, 0, op.longest)};
  for (int m = 0; m < group.size(); ++m) {
    if (m != op.root) streams.push_back(&meeting.seen(m, 0, op.longest));
  }
  const Split split(streams);
  if (split.shared.empty()) {
    meeting.leave();
  } else {
    const size_t bytes = split.shared.bytes();
    const Range slice = slice_of(bytes, group.size(), group.rank(), kPage);
    PieceWalker pieces(group);
    co_await pieces.walk(split.shared.part(slice), std::move(streams), copy);
    if (sends && out.bytes() > 0) copy_stream(split.shared.of(in), split.shared.of(out));
    co_await meeting.part(bytes);
  }
  if (split.rest.empty()) co_return;
  Op rest_op = op;
  rest_op.longest = split.rest.bytes();
  const Segments rest_in = sends ? split.rest.of(in) : Segments();
  const Segments rest_out = out.bytes() > 0 ? split.rest.of(out) : Segments();
  co_await slots_broadcast(group, rest_op, rest_in, rest_out);
}

// Members fetch what the others show; nobody writes another one's memory.

Task direct_allgather(Group& group, const Op& op, const Segments& in, const Streams& out) {
  Meeting meeting(group, op, op.longest);
  std::vector<const Segments*> shows{&in};
  co_await meeting.meet(std::move(shows), -1);
  if (meeting.declined()) {
    meeting.leave();
    co_await slots_allgather(group, op, in, out);
    co_return;
  }
  std::vector<Split> splits;
  size_t shared = 0;
  Op rest_op = op;
  rest_op.longest = 0;
  for (int m = 0; m < group.size(); ++m) {
    std::vector<const Segments*> streams{&meeting.seen(m, 0, out[static_cast<size_t>(m)].bytes())};
    splits.emplace_back(std::move(streams));
    shared += splits.back().shared.bytes();
    rest_op.longest = std::max(rest_op.longest, splits.back().rest.bytes());
  }
  if (shared == 0) {
    meeting.leave();
  } else {
    for (int i = 0; i < group.size(); ++i) {
      const int m = (group.rank() + i) % group.size();
      const auto member = static_cast<size_t>(m);
      co_await fetch(group, splits[member].shared, meeting.seen(m, 0), out[member]);
    }
    co_await meeting.part(shared);
  }
  if (rest_op.longest == 0) co_return;
  Streams rest_out;
  for (size_t m = 0; m < out.size(); ++m) rest_out.push_back(splits[m].rest.of(out[m]));
  const Segments rest_in = splits[static_cast<size_t>(group.rank())].rest.of(in);
  co_await slots_allgather(group, rest_op, rest_in, rest_out);
}

Task direct_alltoall(Group& group, const Op& op, const Streams& in, const Streams& out) {
  const auto own = static_cast<size_t>(group.rank());
  const Segments nothing;
  Meeting meeting(group, op, op.longest * in.size());
  std::vector<const Segments*> shows;
  for (size_t m = 0; m < in.size(); ++m) shows.push_back(m == own ? &nothing : &in[m]);
  co_await meeting.meet(std::move(shows), -1);
  if (meeting.declined()) {
    meeting.leave();
    co_await slots_alltoall(group, op, in, out);
    co_return;
  }
  size_t shared = 0;
  Op rest_op = op;
  rest_op.longest = 0;
  Streams rest_in(in.size());
  for (int m = 0; m < group.size(); ++m) {
    for (size_t to = 0; to < in.size(); ++to) {
      std::vector<const Segments*> streams{&meeting.seen(m, to)};
      const Split split(std::move(streams));
      shared += split.shared.bytes();
      rest_op.longest = std::max(rest_op.longest, split.rest.bytes());
      if (m == group.rank() && to != own) rest_in[to] = split.rest.of(in[to]);
    }
  }
  Streams rest_out(out.size());
  for (int i = 1; i < group.size(); ++i) {
    const int m = (group.rank() + i) % group.size();
    const auto member = static_cast<size_t>(m);
    const Segments& theirs = meeting.seen(m, own, out[member].bytes());
    std::vector<const Segments*> streams{&theirs};
    const Split split(std::move(streams));
    rest_out[member] = split.rest.of(out[member]);
    co_await fetch(group, split.shared, theirs, out[member]);
  }
  if (shared == 0) {
    meeting.leave();
  } else {
    co_await meeting.part(shared);
  }
  if (rest_op.longest == 0) {
    copy_stream(in[own], out[own]);
    co_return;
  }
  rest_in[own] = in[own];
  rest_out[own] = out[own];
  co_await slots_alltoall(group, rest_op, rest_in, rest_out);
}

}  // namespace sirtaki
