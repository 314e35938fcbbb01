#include <vector>

#include "collectives/inter_host/inter_host.h"
#include "collectives/slots/slot_move.h"

namespace sirtaki {
namespace {

/// Every member's stream goes to its owner on each other host. A member shares what it has received
/// with those of its host, after its own stream, while the rest is still arriving.
class InterHostGather {
 public:
  InterHostGather(InterHostGroup& group, const Op& op, const Segments& in, const Streams& out)
      : group_(group), local_(group.local()), net_(group.net()), op_(op), in_(in), out_(out) {}

  Task run() {
    co_await send_to_all();
    if (group_.shares()) co_await share_all();
    co_await net_.idle();
    copy_stream(in_, out_[static_cast<size_t>(group_.rank())]);
  }

 private:
  Task send_to_all() {
    std::vector<int> owners;
    for (int host = 0; host < group_.hosts(); ++host) {
      if (host != group_.host()) owners.push_back(group_.owner(host, group_.rank()));
    }
    co_await open(group_, owners, group_.owned(), greeting_of(op_, op_.longest));
    for (int owner : owners) send_stream(net_, group_.world_rank(owner), in_);
    for (int peer : group_.owned()) {
      const int rank = group_.world_rank(peer);
      begins_.push_back(net_.receive(rank, nullptr, 0));
      receive_stream(net_, rank, out_[static_cast<size_t>(peer)]);
    }
    net_.start();
  }

  /// The streams that a member of this host shares, its own first.
  std::vector<size_t> shared_by(int local_member) const {
    const int member = group_.members_on(group_.host())[static_cast<size_t>(local_member)];
    std::vector<size_t> streams{static_cast<size_t>(member)};
    for (int m = 0; m < group_.size(); ++m) {
      if (m != member && group_.owner(group_.host(), m) == member) {
        streams.push_back(static_cast<size_t>(m));
      }
    }
    return streams;
  }

  Task share_all() {
    std::vector<std::vector<size_t>> shared;
    size_t most = 0;
    for (int m = 0; m < local_.size(); ++m) {
      shared.push_back(shared_by(m));
      most = std::max(most, shared.back().size());
    }
    // A chunk's room limits the number of streams at a time.
    const size_t room = StreamSlots::most(local_.stream_bytes()) / kSliceAlign;
    const size_t at_once = std::min(most, room);
    for (size_t first = 0; first < most; first += at_once) {
      SlotMove move(local_, op_, static_cast<int>(at_once), Algorithm::kStreamed);
      for (int m = 0; m < local_.size(); ++m) {
        const std::vector<size_t>& streams = shared[static_cast<size_t>(m)];
        for (size_t i = first; i < std::min(first + at_once, streams.size()); ++i) {
          const Segments& stream = out_[streams[i]];
          const auto block = static_cast<int>(i - first);
          if (m != local_.rank()) {
            move.takes(stream, m, block);
          } else {
            move.gives(i == 0 ? in_ : stream, block);
          }
        }
      }
      co_await move.run(
          [&](size_t given, size_t end, uint32_t q) { return arrived(first + given, end, q); });
    }
  }

  /// Awaits stream number `index` of those that this member shares; the first is its own.
  Task arrived(size_t index, size_t end, uint32_t q) {
    if (index == 0) co_return;
    const Ticket& begin = begins_[index - 1];
    co_await net_.done({begin.flow, begin.until + end}, q);
  }

  InterHostGroup& group_;
  Group& local_;
  InterHostNet& net_;
  const Op& op_;
  const Segments& in_;
  const Streams& out_;
  std::vector<Ticket> begins_;  ///< of arriving streams, in the order of `owned`
};

}  // namespace

Task inter_host_allgather(InterHostGroup& group, const Op& op, const Streams& in,
                          const Streams& out) {
  InterHostGather gather(group, op, in[0], out);
  co_await gather.run();
}

}  // namespace sirtaki
