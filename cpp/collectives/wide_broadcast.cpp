#include <algorithm>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/place.h"
#include "collectives/slots.h"
#include "collectives/wide.h"

namespace sirtaki {
namespace {

/// Large messages go from host to host in a chain that begins at the root's, chunk by chunk, so
/// every link carries them once. Each lane carries its slice of every chunk; on a host, the lanes
/// share what they received.
class Chain {
 public:
  Chain(WideGroup& group, const Op& op, const Segments& in, const Segments& out)
      : group_(group),
        local_(group.local()),
        net_(group.sockets()),
        op_(op),
        in_(in),
        out_(out),
        chunk_(chunk_for(group, op)),
        chunks_(op.longest, chunk_),
        slots_(local_, chunk_),
        is_root_(group.rank() == op.root),
        stream_(is_root_ ? in : out),
        copied_(is_root_ ? in : out) {
    const int hosts = group.hosts();
    position_ = (group.host() - group.host_of(op.root) + hosts) % hosts;
    lane_ = local_.rank() < group.lanes() ? local_.rank() : -1;
  }

  Task run() {
    co_await greet();
    if (position_ > 0 && lane_ >= 0) receive_all();
    if (group_.shares()) co_await local_.begin_stream();
    if (position_ > 0) {
      co_await pass_on();
    } else if (is_root_) {
      co_await send_as_root();
    } else {
      co_await follow_root();
    }
    co_await net_.idle();
    if (group_.shares()) local_.end();
    if (is_root_ && out_.bytes() > 0) copy_stream(in_, out_);
  }

 private:
  static size_t chunk_for(const WideGroup& group, const Op& op) {
    // The same on all hosts, whatever the number of members there.
    const size_t least = static_cast<size_t>(group.lanes()) * kSliceAlign;
    const size_t wanted =
        std::min(std::max(op.longest / 8, kLeast), std::max(op.chunk_bytes, least));
    const size_t most = StreamSlots::most(group.stream_bytes());
    return std::min(wanted * static_cast<size_t>(group.lanes()), most) / kSliceAlign * kSliceAlign;
  }

  bool has_next() const { return lane_ >= 0 && position_ + 1 < group_.hosts(); }
  int neighbour(int step) const {
    const int host = (group_.host() + step + group_.hosts()) % group_.hosts();
    return group_.world_rank(group_.members_on(host)[static_cast<size_t>(lane_)]);
  }
  Range slice(uint32_t q, int lane) const {
    const Range chunk = chunks_.range(q);
    const Range part = slice_of(chunk.bytes(), group_.lanes(), lane);
    return {chunk.begin + part.begin, chunk.begin + part.end};
  }

  Task greet() {
    co_await group_.open();
    const Greeting greeting = greeting_of(op_, op_.longest);
    if (has_next()) net_.greet(neighbour(1), greeting);
    if (lane_ >= 0 && position_ > 0) net_.expect(neighbour(-1), greeting);
  }

  void receive_all() {
    const int from = neighbour(-1);
    for (uint32_t q = 0; q < chunks_.count(); ++q) {
      Mark mark = net_.receive(from, nullptr, 0);
      stream_.walk(slice(q, lane_), [&](std::byte* to, size_t bytes, size_t) {
        mark = net_.receive(from, to, bytes);
      });
      arrived_.push_back(mark);
    }
  }

  void forward(uint32_t q) {
    if (!has_next()) return;
    const int to = neighbour(1);
    stream_.walk(slice(q, lane_),
                 [&](const std::byte* from, size_t bytes, size_t) { net_.send(to, from, bytes); });
    net_.start();
  }

  Task send_as_root() {
    for (uint32_t q = 0; q < chunks_.count(); ++q) {
      if (group_.shares()) {
        if (q >= StreamSlots::kDepth) co_await local_.all_consumed(q + 1 - StreamSlots::kDepth);
        copied_.copy_to(slots_.input(local_.rank(), q), chunks_.range(q));
        local_.publish();
      }
      forward(q);
    }
    if (group_.shares()) local_.skip_consumed(chunks_.count());
  }

  Task follow_root() {
    const int root = group_.index_of(op_.root);
    local_.skip_published(chunks_.count());
    for (uint32_t q = 0; q < chunks_.count(); ++q) {
      co_await local_.published(root, q + 1);
      copied_.copy_from(slots_.input(root, q), chunks_.range(q));
      local_.consume();
      forward(q);
    }
  }

  Task pass_on() {
    if (group_.shares() && lane_ < 0) local_.skip_published(chunks_.count());
    for (uint32_t q = 0; q < chunks_.count(); ++q) {
      if (lane_ >= 0) {
        co_await net_.reached(arrived_[q], q);
        forward(q);
      }
      if (group_.shares()) co_await share(q);
    }
  }

  Task share(uint32_t q) {
    if (lane_ >= 0) {
      if (q >= StreamSlots::kDepth) co_await local_.all_consumed(q + 1 - StreamSlots::kDepth);
      const Range own = slice(q, lane_);
      stream_.walk(own, [&](const std::byte* from, size_t bytes, size_t at) {
        std::memcpy(slots_.input(local_.rank(), q) + (at - own.begin), from, bytes);
      });
      local_.publish();
    }
    for (int lane = 0; lane < group_.lanes(); ++lane) {
      if (lane == lane_) continue;
      co_await local_.published(lane, q + 1);
      const Range range = slice(q, lane);
      stream_.walk(range, [&](std::byte* to, size_t bytes, size_t at) {
        std::memcpy(to, slots_.input(lane, q) + (at - range.begin), bytes);
      });
    }
    local_.consume();
  }

  static constexpr size_t kLeast = 32 << 10;

  WideGroup& group_;
  Group& local_;
  Sockets& net_;
  const Op& op_;
  const Segments& in_;
  const Segments& out_;
  size_t chunk_;
  Chunks chunks_;
  StreamSlots slots_;
  bool is_root_;
  Locator stream_;  ///< what is sent, and filled before that where this is not the root
  Cursor copied_;
  int position_ = 0;  ///< of this host in the chain
  int lane_ = -1;
  std::vector<Mark> arrived_;
};

/// Few bytes go from the root to its agents at once; each shares them on its host.
Task broadcast_at_once(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  Group& local = group.local();
  Sockets& net = group.sockets();
  const bool is_root = group.rank() == op.root;
  const int source = group.agent(group.host(), op.root);
  const Greeting greeting = greeting_of(op, op.longest);
  const Range all{0, op.longest};
  int which = 0;
  if (group.shares()) which = co_await local.begin_small();
  co_await group.open();
  if (is_root) {
    for (int h = 0; h < group.hosts(); ++h) {
      if (h == group.host()) continue;
      const int agent = group.world_rank(group.agent(h, op.root));
      net.greet(agent, greeting);
      for (const Segment& piece : in.list()) net.send(agent, piece.data, piece.bytes);
    }
    net.start();
  } else if (group.rank() == source) {
    const int root = group.world_rank(op.root);
    net.expect(root, greeting);
    for (const Segment& piece : out.list()) net.receive(root, piece.data, piece.bytes);
    co_await net.idle();
  }
  if (group.shares()) {
    const int from = group.index_of(source);
    if (group.rank() == source) {
      Cursor(is_root ? in : out).copy_to(local.small_slot(from, which), all);
    }
    local.publish();
    co_await local.published(from, 1);
    if (group.rank() != source) Cursor(out).copy_from(local.small_slot(from, which), all);
    local.end();
  }
  co_await net.idle();
  if (is_root && out.bytes() > 0) copy_stream(in, out);
}

}  // namespace

Task broadcast(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  if (op.longest == 0) co_return;
  if (goes_at_once(group, op.longest)) {
    co_await broadcast_at_once(group, op, in, out);
    co_return;
  }
  Chain chain(group, op, in, out);
  co_await chain.run();
}

}  // namespace sirtaki
