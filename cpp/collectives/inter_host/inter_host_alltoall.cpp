#include "collectives/collectives.h"
#include "collectives/inter_host/inter_host.h"

namespace sirtaki {
namespace {

/// Selects the streams of this host's members.
Streams of_this_host(const InterHostGroup& group, const Streams& streams) {
  Streams result;
  for (int m : group.members_on(group.host())) result.push_back(streams[static_cast<size_t>(m)]);
  return result;
}

/// Members exchange in turns, which limits what is in progress at a time. A pair has the same turn
/// at both ends, and no member begins a turn before the last has ended.
constexpr int kTurn = 64;

int turns_of(const InterHostGroup& group) { return (group.size() + kTurn - 1) / kTurn; }

/// The members of other hosts that this one exchanges bytes with in a turn: all, or with a root
/// only the pairs that include it.
std::vector<int> peers_of(const InterHostGroup& group, const Op& op, int turn) {
  std::vector<int> result;
  for (int m = 0; m < group.size(); ++m) {
    if (group.host_of(m) == group.host()) continue;
    if ((group.rank() + m) % group.size() / kTurn != turn) continue;
    if (!traits_of(op.kind).rooted || group.rank() == op.root || m == op.root) result.push_back(m);
  }
  return result;
}

/// Every pair of members on two hosts has its own connection, which carries both of their streams.
Task exchange(InterHostGroup& group, const Op& op, const Streams& in, const Streams& out,
              int turn) {
  InterHostNet& net = group.net();
  const std::vector<int> peers = peers_of(group, op, turn);
  co_await open(group, peers, peers, greeting_of(op, op.longest));
  for (int peer : peers) {
    const auto member = static_cast<size_t>(peer);
    const int rank = group.world_rank(peer);
    send_stream(net, rank, in[member]);
    receive_stream(net, rank, out[member]);
  }
  net.start();
}

}  // namespace

Task inter_host_alltoall(InterHostGroup& group, const Op& op, const Streams& in,
                         const Streams& out) {
  co_await exchange(group, op, in, out, 0);
  // Meanwhile the members of one host exchange theirs through shared memory.
  if (!traits_of(op.kind).rooted || group.host_of(op.root) == group.host()) {
    const Streams sent = of_this_host(group, in);
    const Streams received = of_this_host(group, out);
    Op here = op;
    here.kind = Kind::kAlltoall;
    co_await carry_out(group.local(), here, sent, received);
  }
  co_await group.net().idle();
  for (int turn = 1; turn < turns_of(group); ++turn) {
    co_await exchange(group, op, in, out, turn);
    co_await group.net().idle();
  }
}

}  // namespace sirtaki
