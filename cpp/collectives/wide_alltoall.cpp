#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/wide.h"

namespace sirtaki {
namespace {

void send_stream(Sockets& net, int rank, const Segments& stream) {
  for (const Segment& piece : stream.list()) net.send(rank, piece.data, piece.bytes);
}

void receive_stream(Sockets& net, int rank, const Segments& stream) {
  for (const Segment& piece : stream.list()) net.receive(rank, piece.data, piece.bytes);
}

/// Of one stream a member, those of this host's members.
Streams of_this_host(const WideGroup& group, const Streams& streams) {
  Streams result;
  for (int m : group.members_on(group.host())) result.push_back(streams[static_cast<size_t>(m)]);
  return result;
}

/// Every pair of members on two hosts has a connection of its own, over which their streams pass
/// each other; meanwhile those of one host exchange theirs through shared memory.
Task exchange(WideGroup& group, const Op& op, const std::vector<int>& peers, const Streams& in,
              const Streams& out) {
  Sockets& net = group.sockets();
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

std::vector<int> members_elsewhere(const WideGroup& group) {
  std::vector<int> result;
  for (int m = 0; m < group.size(); ++m) {
    if (group.host_of(m) != group.host()) result.push_back(m);
  }
  return result;
}

/// Of a collective with a root, the members of other hosts that this one exchanges bytes with.
std::vector<int> peers_of_rooted(const WideGroup& group, int root) {
  if (group.rank() == root) return members_elsewhere(group);
  if (group.host_of(root) != group.host()) return {root};
  return {};
}

Task exchange_on_host(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  const Streams sent = of_this_host(group, in);
  const Streams received = of_this_host(group, out);
  co_await alltoall(group.local(), op, sent, received);
}

/// One side of an alltoall, as within a host.
Task exchange_rooted(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  const std::vector<int> peers = peers_of_rooted(group, op.root);
  co_await exchange(group, op, peers, in, out);
  if (group.host_of(op.root) == group.host()) co_await exchange_on_host(group, op, in, out);
  co_await group.sockets().idle();
}

}  // namespace

Task alltoall(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  const std::vector<int> peers = members_elsewhere(group);
  co_await exchange(group, op, peers, in, out);
  co_await exchange_on_host(group, op, in, out);
  co_await group.sockets().idle();
}

Task gather(WideGroup& group, const Op& op, const Segments& in, const Streams& out) {
  const auto members = static_cast<size_t>(group.size());
  Streams sent(members);
  sent[static_cast<size_t>(op.root)] = in;
  const Streams nothing(members);
  co_await exchange_rooted(group, op, sent, group.rank() == op.root ? out : nothing);
}

Task scatter(WideGroup& group, const Op& op, const Streams& in, const Segments& out) {
  const auto members = static_cast<size_t>(group.size());
  Streams received(members);
  received[static_cast<size_t>(op.root)] = out;
  const Streams nothing(members);
  co_await exchange_rooted(group, op, group.rank() == op.root ? in : nothing, received);
}

}  // namespace sirtaki
