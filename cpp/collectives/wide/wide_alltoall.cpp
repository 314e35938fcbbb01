#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/wide/wide.h"

namespace sirtaki {
namespace {

/// Of one stream a member, those of this host's members.
Streams of_this_host(const WideGroup& group, const Streams& streams) {
  Streams result;
  for (int m : group.members_on(group.host())) result.push_back(streams[static_cast<size_t>(m)]);
  return result;
}

bool is_rooted(const Op& op) { return op.kind == Kind::kGather || op.kind == Kind::kScatter; }

/// Members are exchanged with in turns, so that there is no end of what is under way at a time. A
/// pair has the same turn at both ends, and nobody begins one before the last has ended.
constexpr int kTurn = 64;

int turns_of(const WideGroup& group) { return (group.size() + kTurn - 1) / kTurn; }

/// The members of other hosts that this one exchanges bytes with in a turn: all, or where one of
/// two is the root.
std::vector<int> peers_of(const WideGroup& group, const Op& op, int turn) {
  std::vector<int> result;
  for (int m = 0; m < group.size(); ++m) {
    if (group.host_of(m) == group.host()) continue;
    if ((group.rank() + m) % group.size() / kTurn != turn) continue;
    if (!is_rooted(op) || group.rank() == op.root || m == op.root) result.push_back(m);
  }
  return result;
}

/// Every pair of members on two hosts has a connection of its own, over which their streams pass
/// each other.
Task exchange(WideGroup& group, const Op& op, const Streams& in, const Streams& out, int turn) {
  WideNet& net = group.net();
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

Task wide_alltoall(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  co_await exchange(group, op, in, out, 0);
  // Meanwhile those of one host exchange theirs through shared memory.
  if (!is_rooted(op) || group.host_of(op.root) == group.host()) {
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
