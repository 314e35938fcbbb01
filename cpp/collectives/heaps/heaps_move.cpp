#include <cstring>

#include "collectives/heaps/share.h"

namespace sirtaki {
namespace {

/// Copies to all places after the first.
void copy(const std::vector<std::byte*>& at, size_t bytes, size_t) {
  for (size_t to = 1; to < at.size(); ++to) {
    if (at[to] != at[0]) std::memcpy(at[to], at[0], bytes);
  }
}

/// Members fetch what the others show: the one stream of each member or, with `each`, their own of
/// its streams. No member writes another one's memory.
Task fetch(Group& group, const Op& op, const Streams& in, const Streams& out, Rest& rest,
           bool each) {
  const int own = group.rank();
  const auto plan = [&](const Handshake& handshake) {
    Share share;
    rest.op.longest = 0;
    for (int i = 1; i <= group.size(); ++i) {
      const int from = (own + i) % group.size();
      for (int to = 0; to < group.size(); ++to) {
        if (each ? from == to : to != own) continue;
        const auto giver = static_cast<size_t>(from);
        const auto stream = static_cast<size_t>(each ? to : 0);
        const Segments& theirs = to == own ? handshake.seen(from, stream, out[giver].bytes())
                                           : handshake.seen(from, stream);
        const Split split({&theirs});
        share.bytes += split.shared.bytes();
        rest.op.longest = std::max(rest.op.longest, split.rest.bytes());
        if (from == own) rest.in[stream] = split.rest.of(in[stream]);
        if (to != own) continue;
        rest.out[giver] = split.rest.of(out[giver]);
        share.jobs.push_back({split.shared, {&theirs, &out[giver]}});
      }
    }
    return share;
  };
  std::vector<const Segments*> shows{&in[0]};
  if (each) shows = for_others(group, in);
  co_await share(group, op, std::move(shows), -1, plan, copy);
}

}  // namespace

// Each member copies a slice of the shared part to all receivers, so that all cores share the work.
Task heaps_broadcast(Group& group, const Op& op, const Streams& in, const Streams& out,
                     Rest& rest) {
  const bool sends = group.rank() == op.root;
  const bool keeps = sends && out[0].bytes() > 0;
  const auto plan = [&](const Handshake& handshake) {
    std::vector<const Segments*> streams{&handshake.seen(op.root, 0, op.longest)};
    for (int m = 0; m < group.size(); ++m) {
      if (m != op.root) streams.push_back(&handshake.seen(m, 0, op.longest));
    }
    const Split split(streams);
    rest.op.longest = split.rest.bytes();
    if (sends) rest.in[0] = split.rest.of(in[0]);
    if (!sends || keeps) rest.out[0] = split.rest.of(out[0]);
    if (keeps) copy_stream(split.shared.of(in[0]), split.shared.of(out[0]));
    Share share;
    share.divide(group, split.shared, std::move(streams));
    return share;
  };
  std::vector<const Segments*> shows{sends ? &in[0] : &out[0]};
  co_await share(group, op, std::move(shows), sends ? -1 : 0, plan, copy);
}

Task heaps_allgather(Group& group, const Op& op, const Streams& in, const Streams& out,
                     Rest& rest) {
  return fetch(group, op, in, out, rest, false);
}

Task heaps_alltoall(Group& group, const Op& op, const Streams& in, const Streams& out, Rest& rest) {
  co_await fetch(group, op, in, out, rest, true);
  // If nothing is left for the slots, this copies the member's stream to itself.
  const auto self = static_cast<size_t>(group.rank());
  if (rest.op.longest == 0) copy_stream(in[self], out[self]);
}

}  // namespace sirtaki
