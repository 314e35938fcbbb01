#include <cstring>

#include "collectives/heaps/share.h"
#include "collectives/ways.h"

namespace sirtaki {
namespace {

/// To all places behind the first.
void copy(const std::vector<std::byte*>& at, size_t bytes, size_t) {
  for (size_t to = 1; to < at.size(); ++to) {
    if (at[to] != at[0]) std::memcpy(at[to], at[0], bytes);
  }
}

}  // namespace

// Each member copies a slice of what is shared to all who receive, so that all cores have a part.
Task heaps_broadcast(Group& group, const Op& op, const Streams& in, const Streams& out,
                     Rest& rest) {
  const bool sends = group.rank() == op.root;
  const bool keeps = sends && out[0].bytes() > 0;
  const auto plan = [&](const Meeting& meeting) {
    std::vector<const Segments*> streams{&meeting.seen(op.root, 0, op.longest)};
    for (int m = 0; m < group.size(); ++m) {
      if (m != op.root) streams.push_back(&meeting.seen(m, 0, op.longest));
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

// Members fetch what the others show; nobody writes another one's memory.

Task heaps_allgather(Group& group, const Op& op, const Streams& in, const Streams& out,
                     Rest& rest) {
  const auto plan = [&](const Meeting& meeting) {
    Share share;
    rest.op.longest = 0;
    for (int i = 0; i < group.size(); ++i) {
      const int m = (group.rank() + i) % group.size();
      const auto member = static_cast<size_t>(m);
      const Segments& theirs = meeting.seen(m, 0, out[member].bytes());
      const Split split({&theirs});
      rest.op.longest = std::max(rest.op.longest, split.rest.bytes());
      rest.out[member] = split.rest.of(out[member]);
      if (m == group.rank()) rest.in[0] = split.rest.of(in[0]);
      share.bytes += split.shared.bytes();
      share.jobs.push_back({split.shared, {&theirs, &out[member]}});
    }
    return share;
  };
  std::vector<const Segments*> shows{&in[0]};
  co_await share(group, op, std::move(shows), -1, plan, copy);
}

Task heaps_alltoall(Group& group, const Op& op, const Streams& in, const Streams& out, Rest& rest) {
  const int own = group.rank();
  const auto plan = [&](const Meeting& meeting) {
    Share share;
    rest.op.longest = 0;
    for (int i = 1; i <= group.size(); ++i) {
      const int from = (own + i) % group.size();
      for (int to = 0; to < group.size(); ++to) {
        if (from == to) continue;
        const auto giver = static_cast<size_t>(from);
        const auto taker = static_cast<size_t>(to);
        const Segments& theirs =
            to == own ? meeting.seen(from, taker, out[giver].bytes()) : meeting.seen(from, taker);
        const Split split({&theirs});
        share.bytes += split.shared.bytes();
        rest.op.longest = std::max(rest.op.longest, split.rest.bytes());
        if (from == own) rest.in[taker] = split.rest.of(in[taker]);
        if (to != own) continue;
        rest.out[giver] = split.rest.of(out[giver]);
        share.jobs.push_back({split.shared, {&theirs, &out[giver]}});
      }
    }
    return share;
  };
  co_await share(group, op, for_others(group, in), -1, plan, copy);
  // What is left copies what a member has for itself.
  const auto self = static_cast<size_t>(own);
  if (rest.op.longest == 0) copy_stream(in[self], out[self]);
}

}  // namespace sirtaki
