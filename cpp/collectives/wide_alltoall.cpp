#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/wide.h"

namespace sirtaki {
namespace {

/// Of one stream a member, those of this host's members.
Streams of_this_host(const WideGroup& group, const Streams& streams) {
  Streams result;
  for (int m : group.members_on(group.host())) result.push_back(streams[static_cast<size_t>(m)]);
  return result;
}

bool is_rooted(const Op& op) { return op.kind == Kind::kGather || op.kind == Kind::kScatter; }

/// The members of other hosts that this one exchanges bytes with: all, or where one of two is the
/// root.
std::vector<int> peers_of(const WideGroup& group, const Op& op) {
  std::vector<int> result;
  for (int m = 0; m < group.size(); ++m) {
    if (group.host_of(m) == group.host()) continue;
    if (!is_rooted(op) || group.rank() == op.root || m == op.root) result.push_back(m);
  }
  return result;
}

/// Every pair of members on two hosts has a connection of its own, over which their streams pass
/// each other.
Task exchange(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  Sockets& net = group.sockets();
  const std::vector<int> peers = peers_of(group, op);
  std::vector<int> ranks;
  for (int peer : peers) ranks.push_back(group.world_rank(peer));
  co_await net.open(ranks);
  const Greeting greeting = greeting_of(op, op.longest);
  for (int peer : peers) {
    const auto member = static_cast<size_t>(peer);
    const int rank = group.world_rank(peer);
    net.greet(rank, greeting);
    net.expect(rank, greeting);
    send_stream(net, rank, in[member]);
    receive_stream(net, rank, out[member]);
  }
  net.start();
}

}  // namespace

Task alltoall(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  co_await exchange(group, op, in, out);
  // Meanwhile those of one host exchange theirs through shared memory.
  if (!is_rooted(op) || group.host_of(op.root) == group.host()) {
    const Streams sent = of_this_host(group, in);
    const Streams received = of_this_host(group, out);
    co_await alltoall(group.local(), op, sent, received);
  }
  co_await group.sockets().idle();
}

}  // namespace sirtaki
