#include <algorithm>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/slots.h"
#include "collectives/wide.h"

namespace sirtaki {
namespace {

/// Every member sends its stream to its agent on each other host. A member shares with those of its
/// host what it has received, behind its own stream, while the rest is still coming.
class WideGather {
 public:
  WideGather(WideGroup& group, const Op& op, const Segments& in, const Streams& out)
      : group_(group), local_(group.local()), net_(group.sockets()), op_(op), in_(in), out_(out) {}

  Task run() {
    co_await exchange();
    if (group_.shares()) co_await share_all();
    co_await net_.idle();
    copy_stream(in_, out_[static_cast<size_t>(group_.rank())]);
  }

 private:
  /// A member of another host whose stream arrives here.
  struct Arrival {
    size_t member;
    Mark begin;
  };

  Task exchange() {
    std::vector<int> peers(group_.wards());
    group_.for_other_hosts([&](int host) { peers.push_back(group_.agent(host, group_.rank())); });
    co_await open(group_, peers);
    const Greeting greeting = greeting_of(op_, op_.longest);
    group_.for_other_hosts([&](int host) {
      const int agent = group_.world_rank(group_.agent(host, group_.rank()));
      net_.greet(agent, greeting);
      send_stream(net_, agent, in_);
    });
    for (int ward : group_.wards()) {
      const int rank = group_.world_rank(ward);
      net_.expect(rank, greeting);
      const auto member = static_cast<size_t>(ward);
      arrivals_.push_back({member, net_.receive(rank, nullptr, 0)});
      receive_stream(net_, rank, out_[member]);
    }
    net_.start();
  }

  /// The streams that a member of this host shares, its own first.
  std::vector<size_t> shared_by(int local_member) const {
    const int member = group_.members_on(group_.host())[static_cast<size_t>(local_member)];
    std::vector<size_t> streams{static_cast<size_t>(member)};
    for (int m = 0; m < group_.size(); ++m) {
      if (m != member && group_.agent(group_.host(), m) == member) {
        streams.push_back(static_cast<size_t>(m));
      }
    }
    return streams;
  }

  Task share_all() {
    size_t most = 0;
    for (int m = 0; m < local_.size(); ++m) {
      shared_.push_back(shared_by(m));
      most = std::max(most, shared_.back().size());
    }
    const size_t chunk = StreamSlots::chunk_for(local_, op_, op_.longest * most, most);
    const size_t block = block_bytes(chunk, static_cast<int>(most));
    const StreamSlots slots(local_, chunk);
    const Chunks chunks(op_.longest, block);
    for (const Segments& stream : out_) cursors_.emplace_back(stream);
    co_await local_.begin_stream();
    for (uint32_t q = 0; q < chunks.count(); ++q) {
      if (q >= StreamSlots::kDepth) co_await local_.all_consumed(q + 1 - StreamSlots::kDepth);
      co_await copy_out(slots.input(local_.rank(), q), chunks, q, block);
      local_.publish();
      for (int m = 0; m < local_.size(); ++m) {
        if (m == local_.rank()) continue;
        co_await local_.published(m, q + 1);
        copy_in(m, slots.input(m, q), chunks, q, block);
      }
      local_.consume();
    }
    local_.end();
  }

  Task copy_out(std::byte* slot, const Chunks& chunks, uint32_t q, size_t block) {
    own_.copy_to(slot, chunks.range(q, in_.bytes()));
    for (const Arrival& arrival : arrivals_) {
      slot += block;
      const Range range = chunks.range(q, out_[arrival.member].bytes());
      co_await net_.reached({arrival.begin.flow, arrival.begin.until + range.end}, q);
      cursors_[arrival.member].copy_to(slot, range);
    }
  }

  void copy_in(int local_member, const std::byte* slot, const Chunks& chunks, uint32_t q,
               size_t block) {
    for (size_t stream : shared_[static_cast<size_t>(local_member)]) {
      cursors_[stream].copy_from(slot, chunks.range(q, out_[stream].bytes()));
      slot += block;
    }
  }

  WideGroup& group_;
  Group& local_;
  Sockets& net_;
  const Op& op_;
  const Segments& in_;
  const Streams& out_;
  Cursor own_{in_};
  std::vector<Arrival> arrivals_;
  std::vector<std::vector<size_t>> shared_;  ///< by member of this host
  std::vector<Cursor> cursors_;
};

}  // namespace

Task allgather(WideGroup& group, const Op& op, const Segments& in, const Streams& out) {
  WideGather gather(group, op, in, out);
  co_await gather.run();
}

}  // namespace sirtaki
