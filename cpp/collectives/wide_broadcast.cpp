#include <algorithm>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/place.h"
#include "collectives/slots.h"
#include "collectives/wide.h"

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

/// Between hosts: large messages go from host to host in a chain that begins at the root's, chunk
/// by chunk, so every link carries them once. Each lane carries its slice of every chunk.
class Chain {
 public:
  Chain(WideGroup& group, const Op& op, const Segments& stream, const Chunks& chunks)
      : group_(group), net_(group.sockets()), stream_(stream), chunks_(chunks) {
    const int hosts = group.hosts();
    position_ = (group.host() - group.host_of(op.root) + hosts) % hosts;
    lane_ = group.local().rank() < group.lanes() ? group.local().rank() : -1;
  }

  Task open(const Greeting& greeting) {
    co_await group_.open();
    if (has_next()) net_.greet(neighbour(1), greeting);
    if (!receives()) co_return;
    const int from = neighbour(-1);
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
  bool receives() const { return lane_ >= 0 && position_ > 0; }
  auto arrived(uint32_t q) const { return net_.reached(arrived_[q], q); }

  /// The lane's slice of a chunk is there: on with it.
  void forward(uint32_t q) {
    if (!has_next()) return;
    const int to = neighbour(1);
    stream_.walk(slice(q, lane_),
                 [&](const std::byte* from, size_t bytes, size_t) { net_.send(to, from, bytes); });
    net_.start();
  }

  Range slice(uint32_t q, int lane) const {
    const Range chunk = chunks_.range(q);
    const Range part = slice_of(chunk.bytes(), group_.lanes(), lane);
    return {chunk.begin + part.begin, chunk.begin + part.end};
  }

 private:
  bool has_next() const { return lane_ >= 0 && position_ + 1 < group_.hosts(); }
  int neighbour(int step) const {
    const int host = (group_.host() + step + group_.hosts()) % group_.hosts();
    return group_.world_rank(group_.members_on(host)[static_cast<size_t>(lane_)]);
  }

  WideGroup& group_;
  Sockets& net_;
  Locator stream_;
  const Chunks& chunks_;
  int position_ = 0;  ///< of this host
  int lane_ = -1;
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
  Chain chain(group, op, stream, chunks);
  ChunkStage stage(local, stream, chunks, chunk);
  co_await chain.open(greeting_of(op, op.longest));
  if (group.shares()) co_await stage.begin(is_root || chain.receives(), !is_root);
  for (uint32_t q = 0; q < chunks.count(); ++q) {
    if (chain.receives()) co_await chain.arrived(q);
    if (is_root && group.shares()) co_await stage.give(q, chunks.range(q));
    if (has_root && !is_root) co_await stage.take(q, group.index_of(op.root), chunks.range(q));
    chain.forward(q);
    if (!group.shares() || is_root) continue;
    if (chain.receives()) co_await stage.give(q, chain.slice(q, chain.lane()));
    for (int lane = 0; lane < group.lanes() && !has_root; ++lane) {
      if (lane != chain.lane()) co_await stage.take(q, lane, chain.slice(q, lane));
    }
    local.consume();
  }
  co_await group.sockets().idle();
  if (group.shares()) local.end();
  if (is_root && out.bytes() > 0) copy_stream(in, out);
}

/// Few bytes go from the root to its agents at once; each hands them out on its host.
Task broadcast_at_once(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  Sockets& net = group.sockets();
  const bool is_root = group.rank() == op.root;
  const int source = group.agent(group.host(), op.root);
  const Greeting greeting = greeting_of(op, op.longest);
  SmallStage stage(group, op.longest);
  co_await stage.begin();
  co_await group.open();
  if (is_root) {
    group.for_other_hosts([&](int host) {
      const int agent = group.world_rank(group.agent(host, op.root));
      net.greet(agent, greeting);
      send_stream(net, agent, in);
    });
    net.start();
  } else if (group.rank() == source) {
    const int root = group.world_rank(op.root);
    net.expect(root, greeting);
    receive_stream(net, root, out);
    co_await net.idle();
  }
  if (group.rank() == source) {
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
  if (goes_at_once(group, op.longest)) {
    co_await broadcast_at_once(group, op, in, out);
  } else {
    co_await broadcast_in_chunks(group, op, in, out);
  }
}

}  // namespace sirtaki
