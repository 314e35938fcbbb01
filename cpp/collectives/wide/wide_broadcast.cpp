#include <algorithm>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/place.h"
#include "collectives/slots/slots.h"
#include "collectives/wide/wide.h"

namespace sirtaki {
namespace {

constexpr size_t kLeast = 32 << 10;

/// The same on all hosts, whatever the number of members there.
size_t chunk_for(const WideGroup& group, const Op& op) {
  const auto lanes = static_cast<size_t>(group.lanes());
  const size_t wanted =
      std::min(std::max(op.longest / 8, kLeast), std::max(op.chunk_bytes, lanes * kSliceAlign));
  const size_t most = StreamSlots::most(group.stream_bytes());
  return std::min(wanted * lanes, most) / kSliceAlign * kSliceAlign;
}

/// Whom this host gets a message from, and whom it passes it on to; the root's host begins.
struct Passing {
  int from = -1;  ///< nobody
  std::vector<int> to;

  Passing(Spread spread, int hosts, int host, int root_host) {
    const int position = (host - root_host + hosts) % hosts;
    const auto host_at = [&](int other) { return (other + root_host) % hosts; };
    if (spread == Spread::kTree) {
      const int parent = tree_parent(position);
      if (parent >= 0) from = host_at(parent);
      for (int child : tree_children(hosts, position)) to.push_back(host_at(child));
    } else if (spread == Spread::kChain) {
      if (position > 0) from = host_at(position - 1);
      if (position + 1 < hosts) to.push_back(host_at(position + 1));
    } else {
      if (position > 0) from = root_host;
      for (int other = 1; other < hosts && position == 0; ++other) to.push_back(host_at(other));
    }
  }
};

/// Between hosts: large messages go from host to host chunk by chunk, in a chain that begins at the
/// root's, so that every link carries them once, or in a tree. Each lane carries its slice of every
/// chunk.
class Lane {
 public:
  Lane(WideGroup& group, const Op& op, const Segments& stream, const Chunks& chunks)
      : group_(group), net_(group.sockets()), stream_(stream), chunks_(chunks) {
    lane_ = group.local().rank() < group.lanes() ? group.local().rank() : -1;
    if (lane_ < 0) return;
    const Spread spread = spread_for(group.rules(), group.hosts(), chunks.count());
    const Passing passing(spread, group.hosts(), group.host(), group.host_of(op.root));
    if (passing.from >= 0) from_ = member(passing.from);
    for (int host : passing.to) to_.push_back(member(host));
  }

  Task open(const Greeting& greeting) {
    std::vector<int> peers(to_);
    if (receives()) peers.push_back(from_);
    co_await sirtaki::open(group_, peers);
    for (int to : to_) net_.greet(group_.world_rank(to), greeting);
    if (!receives()) co_return;
    const int from = group_.world_rank(from_);
    net_.expect(from, greeting);
    for (uint32_t q = 0; q < chunks_.count(); ++q) {
      Mark mark = net_.receive(from, nullptr, 0);
      stream_.walk(slice(q, lane_), [&](std::byte* to, size_t bytes, size_t) {
        mark = net_.receive(from, to, bytes);
      });
      arrived_.push_back(mark);
    }
  }

  int lane() const { return lane_; }  ///< -1: none
  bool receives() const { return from_ >= 0; }
  auto arrived(uint32_t q) const { return net_.reached(arrived_[q], q); }

  /// The lane's slice of a chunk is there: on with it.
  void forward(uint32_t q) {
    for (int to : to_) {
      stream_.walk(slice(q, lane_), [&](const std::byte* from, size_t bytes, size_t) {
        net_.send(group_.world_rank(to), from, bytes);
      });
    }
    if (!to_.empty()) net_.start();
  }

  Range slice(uint32_t q, int lane) const {
    const Range chunk = chunks_.range(q);
    const Range part = slice_of(chunk.bytes(), group_.lanes(), lane);
    return {chunk.begin + part.begin, chunk.begin + part.end};
  }

 private:
  int member(int host) const { return group_.members_on(host)[static_cast<size_t>(lane_)]; }

  WideGroup& group_;
  Sockets& net_;
  Locator stream_;
  const Chunks& chunks_;
  int lane_ = -1;
  int from_ = -1;
  std::vector<int> to_;
  std::vector<Mark> arrived_;
};

/// Inside a host: some members have the chunks, whole or a slice of each, and all get them.
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
    std::byte* slot = slots_.input(local_.rank(), q);
    stream_.walk(range, [&](const std::byte* from, size_t bytes, size_t at) {
      std::memcpy(slot + (at - range.begin), from, bytes);
    });
    local_.publish();
  }
  Task take(uint32_t q, int local_member, Range range) {
    co_await local_.published(local_member, q + 1);
    const std::byte* slot = slots_.input(local_member, q);
    stream_.walk(range, [&](std::byte* to, size_t bytes, size_t at) {
      std::memcpy(to, slot + (at - range.begin), bytes);
    });
  }

 private:
  Group& local_;
  Locator stream_;
  const Chunks& chunks_;
  StreamSlots slots_;
};

Task broadcast_in_chunks(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  Group& local = group.local();
  const bool is_root = group.rank() == op.root;
  const bool has_root = group.host() == group.host_of(op.root);
  const Segments& stream = is_root ? in : out;
  const size_t chunk = chunk_for(group, op);
  const Chunks chunks(op.longest, chunk);
  Lane lane(group, op, stream, chunks);
  ChunkStage stage(local, stream, chunks, chunk);
  co_await lane.open(greeting_of(op, op.longest));
  if (group.shares()) co_await stage.begin(is_root || lane.receives(), !is_root);
  for (uint32_t q = 0; q < chunks.count(); ++q) {
    if (lane.receives()) co_await lane.arrived(q);
    if (is_root && group.shares()) co_await stage.give(q, chunks.range(q));
    if (has_root && !is_root) co_await stage.take(q, group.index_of(op.root), chunks.range(q));
    lane.forward(q);
    if (!group.shares() || is_root) continue;
    if (lane.receives()) co_await stage.give(q, lane.slice(q, lane.lane()));
    for (int l = 0; l < group.lanes() && !has_root; ++l) {
      if (l != lane.lane()) co_await stage.take(q, l, lane.slice(q, l));
    }
    local.consume();
  }
  co_await group.sockets().idle();
  if (group.shares()) local.end();
  if (is_root && out.bytes() > 0) copy_stream(in, out);
}

/// Between the root and its agents: returns once the message is here.
Task pass_on(WideGroup& group, const Op& op, const Segments& stream) {
  Sockets& net = group.sockets();
  const Spread spread = spread_for(group.rules(), group.hosts(), 0);
  const Passing passing(spread, group.hosts(), group.host(), group.host_of(op.root));
  const Greeting greeting = greeting_of(op, op.longest);
  const auto agent = [&](int host) { return group.agent(host, op.root); };
  std::vector<int> peers;
  for (int host : passing.to) peers.push_back(agent(host));
  if (passing.from >= 0) peers.push_back(agent(passing.from));
  co_await open(group, peers);
  if (passing.from >= 0) {
    const int rank = group.world_rank(agent(passing.from));
    net.expect(rank, greeting);
    receive_stream(net, rank, stream);
    co_await net.idle();
  }
  for (int host : passing.to) {
    const int rank = group.world_rank(agent(host));
    net.greet(rank, greeting);
    send_stream(net, rank, stream);
  }
  net.start();
}

/// Few bytes go from the root to its agents in one piece; each hands them out on its host.
Task broadcast_at_once(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  Sockets& net = group.sockets();
  const bool is_root = group.rank() == op.root;
  const int source = group.agent(group.host(), op.root);
  SmallStage stage(group, op.longest);
  co_await stage.begin();
  if (group.rank() == source) {
    co_await pass_on(group, op, is_root ? in : out);
    stage.give(is_root ? &in : &out);
  } else {
    stage.give(nullptr);
    co_await stage.take(group.index_of(source), &out);
  }
  stage.end();
  co_await net.idle();
  if (is_root && out.bytes() > 0) copy_stream(in, out);
}

}  // namespace

Task broadcast(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  if (op.longest == 0) co_return;
  if (goes_at_once(group.rules(), group.hosts(), op.longest)) {
    co_await broadcast_at_once(group, op, in, out);
  } else {
    co_await broadcast_in_chunks(group, op, in, out);
  }
}

}  // namespace sirtaki
