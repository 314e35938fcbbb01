#include <algorithm>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/place.h"
#include "collectives/range_reduce.h"
#include "collectives/wide/wide.h"

namespace sirtaki {
namespace {

/// On each host the first member adds up what the others give, gets the sums of all hosts from
/// their first members, adds them, and hands out the result.
class Leaders {
 public:
  Leaders(WideGroup& group, const Op& op, size_t bytes)
      : group_(group),
        net_(group.sockets()),
        op_(op),
        scales_(scales_of(op)),
        bytes_(bytes),
        stage_(group, bytes) {}

  Task run(const Segments& in, const Segments* out) {
    co_await stage_.begin();
    if (group_.local().rank() == 0) {
      co_await lead(in, out);
    } else {
      stage_.give(&in);
      co_await stage_.take(0, out);
    }
    stage_.end();
  }

 private:
  Task lead(const Segments& in, const Segments* out) {
    if (group_.shares()) co_await stage_.all_have_given();
    const auto hosts = static_cast<size_t>(group_.hosts());
    // Each host's sum, then the result.
    std::vector<std::byte> sums((hosts + 1) * bytes_);
    std::byte* result = sums.data() + hosts * bytes_;
    if (bytes_ > 0) sum_host(in, sums.data());
    co_await exchange(sums.data());
    if (bytes_ > 0) sum_hosts(sums, result);
    Segments sum;
    sum.add(result, bytes_);
    if (out != nullptr) copy_stream(sum, *out);
    stage_.give(&sum);
  }

  void sum_host(const Segments& in, std::byte* to) {
    Cursor own(in);
    const Place target(to, 0);
    const auto slot = [&](int m, size_t at) { return stage_.slot(m) + at; };
    RangeReduce reduce(op_, scales_.on_host, group_.local().size());
    reduce.run({0, bytes_}, own, 0, target, slot);
  }

  /// The sum of each host, behind one another; this one's comes first, the others' behind it as
  /// they do in a circle.
  std::byte* sum_of(std::vector<std::byte>& sums, int host) const {
    const int hosts = group_.hosts();
    return sums.data() + static_cast<size_t>((host - group_.host() + hosts) % hosts) * bytes_;
  }
  int leader(int host) const { return group_.members_on(host % group_.hosts())[0]; }

  Task exchange(std::byte* sums) {
    return group_.hosts() <= group_.rules().direct_hosts ? exchange_directly(sums)
                                                         : exchange_doubling(sums);
  }

  Task exchange_directly(std::byte* sums) {
    std::vector<int> leaders;
    for (int i = 1; i < group_.hosts(); ++i) leaders.push_back(leader(group_.host() + i));
    co_await open(group_, leaders);
    for (size_t i = 1; i <= leaders.size(); ++i) {
      send(leaders[i - 1], sums, bytes_);
      receive(leaders[i - 1], sums + i * bytes_, bytes_);
    }
    co_await net_.idle();
  }

  /// In each step all hosts that this one knows are passed on, so that it knows twice as many.
  Task exchange_doubling(std::byte* sums) {
    std::vector<HalvingStep> steps = halving_steps(group_.hosts());
    std::reverse(steps.begin(), steps.end());
    const auto before = [&](int distance) {
      return leader(group_.host() + group_.hosts() - distance);
    };
    const auto behind = [&](int distance) { return leader(group_.host() + distance); };
    std::vector<int> leaders;
    for (const HalvingStep& step : steps) {
      leaders.push_back(before(step.kept));
      leaders.push_back(behind(step.kept));
    }
    co_await open(group_, leaders);
    for (const HalvingStep& step : steps) {
      const size_t bytes = static_cast<size_t>(step.moved()) * bytes_;
      send(before(step.kept), sums, bytes);
      receive(behind(step.kept), sums + static_cast<size_t>(step.kept) * bytes_, bytes);
      co_await net_.idle();
    }
  }

  void send(int member, const std::byte* from, size_t bytes) {
    net_.greet(group_.world_rank(member), greeting_of(op_, bytes_));
    net_.send(group_.world_rank(member), from, bytes);
  }
  void receive(int member, std::byte* to, size_t bytes) {
    net_.expect(group_.world_rank(member), greeting_of(op_, bytes_));
    net_.receive(group_.world_rank(member), to, bytes);
  }

  /// In the order of hosts.
  void sum_hosts(std::vector<std::byte>& sums, std::byte* result) {
    const Place own(sum_of(sums, 0), 0);
    const Place target(result, 0);
    const auto sum = [&](int h, size_t at) { return sum_of(sums, h) + at; };
    RangeReduce(op_, scales_.among_hosts, group_.hosts()).run({0, bytes_}, own, 0, target, sum);
  }

  WideGroup& group_;
  Sockets& net_;
  const Op& op_;
  HostScales scales_;
  size_t bytes_;
  SmallStage stage_;
};

}  // namespace

Greeting greeting_of(const Op& op, size_t bytes) {
  return {static_cast<uint8_t>(op.kind),
          static_cast<uint8_t>(op.dtype),
          static_cast<uint8_t>(op.reduce),
          0,
          op.set,
          bytes};
}

void send_stream(Sockets& net, int rank, const Segments& stream) {
  for (const Segment& piece : stream.list()) net.send(rank, piece.data, piece.bytes);
}

void receive_stream(Sockets& net, int rank, const Segments& stream) {
  for (const Segment& piece : stream.list()) net.receive(rank, piece.data, piece.bytes);
}

HostScales scales_of(const Op& op) {
  const bool sums = op.reduce == ReduceOp::kSum || op.reduce == ReduceOp::kAverage;
  // A sum that is to become an average might not fit into 16 bits.
  if (is_half(op.dtype) && sums && op.scale.post < 1.0) return {op.scale, {}};
  return {{op.scale.pre, 1.0}, {1.0, op.scale.post}};
}

Task SmallStage::begin() {
  if (shares_) which_ = co_await local_.begin_small();
}

void SmallStage::give(const Segments* in) {
  if (!shares_) return;
  if (in != nullptr) Cursor(*in).copy_to(slot(local_.rank()), {0, bytes_});
  local_.publish();
}

Task SmallStage::take(int local_member, const Segments* out) {
  co_await local_.published(local_member, 1);
  if (out != nullptr) Cursor(*out).copy_from(slot(local_member), {0, bytes_});
}

void SmallStage::end() {
  if (shares_) local_.end();
}

Task open(WideGroup& group, const std::vector<int>& members) {
  std::vector<int> ranks;
  for (int member : members) ranks.push_back(group.world_rank(member));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return group.sockets().open(std::move(ranks));
}

HostShape shape_of(const WideGroup& group) { return {group.hosts(), group.lanes()}; }

Task reduce_at_once(WideGroup& group, const Op& op, const Segments& in, const Segments* out) {
  Leaders leaders(group, op, in.bytes());
  co_await leaders.run(in, out);
}

Task barrier(WideGroup& group) {
  Op op;
  op.set = group.set();
  const Segments nothing;
  co_await reduce_at_once(group, op, nothing, nullptr);
}

}  // namespace sirtaki
