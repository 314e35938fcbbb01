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
void exchange(WideGroup& group, const Op& op, const std::vector<int>& peers, const Streams& in,
              const Streams& out) {
  Sockets& net = group.sockets();
  std::vector<int> ranks;
  for (int peer : peers) ranks.push_back(group.world_rank(peer));
  net.open(ranks);
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

/// One side of an alltoall, as within a host.
void exchange_rooted(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  exchange(group, op, peers_of_rooted(group, op.root), in, out);
  if (group.host_of(op.root) == group.host()) {
    alltoall(group.local(), op, of_this_host(group, in), of_this_host(group, out));
  }
  group.sockets().await_all();
}

}  // namespace

void alltoall(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  exchange(group, op, members_elsewhere(group), in, out);
  alltoall(group.local(), op, of_this_host(group, in), of_this_host(group, out));
  group.sockets().await_all();
}

void gather(WideGroup& group, const Op& op, const Segments& in, const Streams& out) {
  const auto members = static_cast<size_t>(group.size());
  Streams sent(members);
  sent[static_cast<size_t>(op.root)] = in;
  exchange_rooted(group, op, sent, group.rank() == op.root ? out : Streams(members));
}

void scatter(WideGroup& group, const Op& op, const Streams& in, const Segments& out) {
  const auto members = static_cast<size_t>(group.size());
  Streams received(members);
  received[static_cast<size_t>(op.root)] = out;
  exchange_rooted(group, op, group.rank() == op.root ? in : Streams(members), received);
}

void send_to_host(Sockets& sockets, int world_rank, const Op& op, const Segments& in) {
  sockets.open({world_rank});
  sockets.greet(world_rank, greeting_of(op, in.bytes()));
  send_stream(sockets, world_rank, in);
  sockets.await_all();
}

void receive_from_host(Sockets& sockets, int world_rank, const Op& op, const Segments& out) {
  sockets.open({world_rank});
  sockets.expect(world_rank, greeting_of(op, out.bytes()));
  receive_stream(sockets, world_rank, out);
  sockets.await_all();
}

}  // namespace sirtaki
