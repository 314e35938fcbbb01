#include <algorithm>
#include <vector>

#include "collectives/slots/slot_move.h"
#include "collectives/wide/wide.h"

namespace sirtaki {
namespace {

/// Every member's stream comes to its agent on each other host: from itself, or, where there are
/// many hosts, from the agent on the host before. A member shares with those of its host what it
/// has received, behind its own stream, while the rest is still coming.
class WideGather {
 public:
  WideGather(WideGroup& group, const Op& op, const Segments& in, const Streams& out)
      : group_(group), local_(group.local()), net_(group.net()), op_(op), in_(in), out_(out) {}

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
    Ticket begin;
    Ticket end(size_t bytes) const { return {begin.flow, begin.until + bytes}; }
  };

  Task exchange() {
    const Algorithm algorithm = algorithm_for(problem_of(group_, op_));
    return algorithm == Algorithm::kDirect ? send_to_all() : pass_round();
  }

  Task send_to_all() {
    std::vector<int> agents;
    group_.for_other_hosts([&](int host) { agents.push_back(group_.agent(host, group_.rank())); });
    co_await open(group_, agents, group_.wards(), greeting_of(op_, op_.longest));
    for (int agent : agents) send_stream(net_, group_.world_rank(agent), in_);
    for (int ward : group_.wards()) receive(ward, ward);
    net_.start();
  }

  /// In each turn a host passes on what came in the turn before, first its own.
  Task pass_round() {
    const int hosts = group_.hosts();
    const int behind = (group_.host() + 1) % hosts;
    const int before = (group_.host() + hosts - 1) % hosts;
    std::vector<int> to, from;
    for (int turn = 0; turn < hosts; ++turn) {
      for (int member : dealt_with(group_.host() - turn)) {
        if (turn > 0) from.push_back(group_.agent(before, member));
        if (turn + 1 < hosts) to.push_back(group_.agent(behind, member));
      }
    }
    co_await open(group_, to, from, greeting_of(op_, op_.longest));
    for (int turn = 1; turn < hosts; ++turn) {
      for (int ward : dealt_with(group_.host() - turn)) receive(ward, group_.agent(before, ward));
    }
    for (int turn = 0; turn + 1 < hosts; ++turn) {
      for (int member : dealt_with(group_.host() - turn)) {
        const auto stream = static_cast<size_t>(member);
        if (turn > 0) co_await net_.done(end_of(stream), 0);
        const int next = group_.world_rank(group_.agent(behind, member));
        send_stream(net_, next, turn > 0 ? out_[stream] : in_);
      }
      net_.start();
    }
    std::sort(arrivals_.begin(), arrivals_.end(),
              [](const Arrival& a, const Arrival& b) { return a.member < b.member; });
  }

  /// Members of a host whose streams come through this one: of its own host, itself.
  std::vector<int> dealt_with(int host) const {
    std::vector<int> result;
    for (int member : group_.members_on((host + group_.hosts()) % group_.hosts())) {
      if (group_.agent(group_.host(), member) == group_.rank()) result.push_back(member);
    }
    return result;
  }

  void receive(int member, int from) {
    const int rank = group_.world_rank(from);
    const auto stream = static_cast<size_t>(member);
    arrivals_.push_back({stream, net_.receive(rank, nullptr, 0)});
    receive_stream(net_, rank, out_[stream]);
  }

  Ticket end_of(size_t stream) const {
    const auto is_its = [&](const Arrival& arrival) { return arrival.member == stream; };
    return std::find_if(arrivals_.begin(), arrivals_.end(), is_its)->end(out_[stream].bytes());
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
    std::vector<std::vector<size_t>> shared;
    size_t most = 0;
    for (int m = 0; m < local_.size(); ++m) {
      shared.push_back(shared_by(m));
      most = std::max(most, shared.back().size());
    }
    // As many streams at a time as a chunk has room for.
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

  /// Of the streams that this member shares the one with that number; the first is its own.
  Task arrived(size_t index, size_t end, uint32_t q) {
    if (index > 0) co_await net_.done(arrivals_[index - 1].end(end), q);
  }

  WideGroup& group_;
  Group& local_;
  WideNet& net_;
  const Op& op_;
  const Segments& in_;
  const Streams& out_;
  std::vector<Arrival> arrivals_;
};

}  // namespace

Task wide_allgather(WideGroup& group, const Op& op, const Streams& in, const Streams& out) {
  WideGather gather(group, op, in[0], out);
  co_await gather.run();
}

}  // namespace sirtaki
