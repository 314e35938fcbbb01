#include <vector>

#include "collectives/cursor.h"
#include "collectives/inter_host/exchange_plan.h"
#include "collectives/inter_host/inter_host.h"
#include "collectives/slots/stream_slots.h"

namespace sirtaki {
namespace {

/// The host that this one receives a message from, and those it passes it on to.
struct Passing {
  int from = -1;  ///< -1: none, for the root's host
  std::vector<int> to;

  Passing(Algorithm algorithm, int hosts, int host, int root_host) {
    const int position = (host - root_host + hosts) % hosts;
    const auto host_at = [&](int other) { return (other + root_host) % hosts; };
    if (algorithm == Algorithm::kTree) {
      const int parent = tree_parent(position);
      if (parent >= 0) from = host_at(parent);
      for (int child : tree_children(hosts, position)) to.push_back(host_at(child));
    } else if (algorithm == Algorithm::kChain) {
      if (position > 0) from = host_at(position - 1);
      if (position + 1 < hosts) to.push_back(host_at(position + 1));
    } else {
      if (position > 0) from = root_host;
      for (int other = 1; other < hosts && position == 0; ++other) to.push_back(host_at(other));
    }
  }
};

/// Between hosts: large messages go from host to host chunk by chunk, in a chain that begins at the
/// root's host, so that every link carries them once, or in a tree; each lane carries its slice of
/// every chunk. The only lane of a small message is the root with its owners.
class Lane {
 public:
  Lane(InterHostGroup& group, const Op& op, const Segments& stream, const Chunks& chunks, int lanes)
      : group_(group),
        net_(group.net()),
        root_(op.root),
        stream_(stream),
        chunks_(chunks),
        lanes_(lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
      if (member(lane, group.host()) == group.rank()) lane_ = lane;
    }
    if (lane_ < 0) return;
    const Algorithm algorithm = algorithm_for(problem_of(group, op));
    const Passing passing(algorithm, group.hosts(), group.host(), group.host_of(op.root));
    if (passing.from >= 0) from_ = member(lane_, passing.from);
    for (int host : passing.to) to_.push_back(member(lane_, host));
  }

  Task open(const Greeting& greeting) {
    const std::vector<int> givers(receives() ? 1 : 0, from_);
    co_await sirtaki::open(group_, to_, givers, greeting);
    if (!receives()) co_return;
    const int from = group_.world_rank(from_);
    for (uint32_t q = 0; q < chunks_.count(); ++q) {
      Ticket ticket = net_.receive(from, nullptr, 0);
      stream_.walk(slice(q, lane_), [&](std::byte* to, size_t bytes, size_t) {
        ticket = net_.receive(from, to, bytes);
      });
      arrived_.push_back(ticket);
    }
  }

  int lane() const { return lane_; }  ///< -1: none
  /// The member that has a lane on this host, by its number there.
  int holder(int lane) const { return group_.index_of(member(lane, group_.host())); }
  bool receives() const { return from_ >= 0; }
  auto arrived(uint32_t q) const { return net_.done(arrived_[q], q); }

  /// The lane's slice of a chunk has arrived: passes it on.
  void forward(uint32_t q) {
    for (int to : to_) {
      stream_.walk(slice(q, lane_), [&](const std::byte* from, size_t bytes, size_t) {
        net_.send(group_.world_rank(to), from, bytes);
      });
    }
    if (!to_.empty()) net_.start();
  }

  Range slice(uint32_t q, int lane) const { return slice_of(chunks_.range(q), lanes_, lane); }

 private:
  int member(int lane, int host) const {
    if (lanes_ == 1) return group_.owner(host, root_);
    return group_.members_on(host)[static_cast<size_t>(lane)];
  }

  InterHostGroup& group_;
  InterHostNet& net_;
  const int root_;
  Cursor stream_;
  const Chunks& chunks_;
  const int lanes_;
  int lane_ = -1;
  int from_ = -1;
  std::vector<int> to_;
  std::vector<Ticket> arrived_;
};

/// Within a host: some members have the chunks, whole or a slice of each, and all receive them.
class ChunkStage {
 public:
  ChunkStage(Group& local, const Segments& stream, const Chunks& chunks, size_t chunk_bytes)
      : local_(local), stream_(stream), chunks_(chunks), slots_(local, chunk_bytes) {}

  Task begin(bool gives, bool takes) {
    co_await local_.begin_stream();
    if (!gives) local_.skip_published(chunks_.count());
    if (!takes) local_.skip_consumed(chunks_.count());
  }
  Task give(uint32_t q, Range range) {
    if (q >= StreamSlots::kDepth) co_await local_.all_consumed(q + 1 - StreamSlots::kDepth);
    stream_.copy_to(slots_.input(local_.rank(), q), range);
    local_.publish();
  }
  Task take(uint32_t q, int local_member, Range range) {
    co_await local_.published(local_member, q + 1);
    stream_.copy_from(slots_.input(local_member, q), range);
  }

 private:
  Group& local_;
  Cursor stream_;
  const Chunks& chunks_;
  StreamSlots slots_;
};

}  // namespace

Task inter_host_broadcast(InterHostGroup& group, const Op& op, const Streams& in,
                          const Streams& out) {
  if (op.longest == 0) co_return;
  Group& local = group.local();
  const bool is_root = group.rank() == op.root;
  const bool has_root = group.host() == group.host_of(op.root);
  const Segments& stream = is_root ? in[0] : out[0];
  const BroadcastCut cut = broadcast_cut(problem_of(group, op));
  const Chunks chunks(op.longest, cut.chunk);
  Lane lane(group, op, stream, chunks, cut.lanes);
  ChunkStage stage(local, stream, chunks, cut.chunk);
  co_await lane.open(greeting_of(op, op.longest));
  if (group.shares()) co_await stage.begin(is_root || lane.receives(), !is_root);
  for (uint32_t q = 0; q < chunks.count(); ++q) {
    if (lane.receives()) co_await lane.arrived(q);
    if (is_root && group.shares()) co_await stage.give(q, chunks.range(q));
    if (has_root && !is_root) co_await stage.take(q, group.index_of(op.root), chunks.range(q));
    lane.forward(q);
    if (!group.shares() || is_root) continue;
    if (lane.receives()) co_await stage.give(q, lane.slice(q, lane.lane()));
    for (int l = 0; l < cut.lanes && !has_root; ++l) {
      if (l != lane.lane()) co_await stage.take(q, lane.holder(l), lane.slice(q, l));
    }
    local.consume();
  }
  co_await group.net().idle();
  if (group.shares()) local.end();
  if (is_root && out[0].bytes() > 0) copy_stream(in[0], out[0]);
}

}  // namespace sirtaki
