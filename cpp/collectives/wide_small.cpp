#include <algorithm>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/place.h"
#include "collectives/range_reduce.h"
#include "collectives/wide.h"

namespace sirtaki {
namespace {

/// On each host the first member adds up what the others give, exchanges that with the first
/// members of all other hosts, and hands out the sum.
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
    std::byte* own = sums.data() + static_cast<size_t>(group_.host()) * bytes_;
    std::byte* result = sums.data() + hosts * bytes_;
    if (bytes_ > 0) sum_host(in, own);
    co_await exchange(sums.data(), own);
    if (bytes_ > 0) sum_hosts(sums.data(), result);
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

  Task exchange(std::byte* sums, const std::byte* own) {
    std::vector<int> leaders;
    const auto leader = [&](int h) { return group_.world_rank(group_.members_on(h)[0]); };
    group_.for_other_hosts([&](int h) { leaders.push_back(leader(h)); });
    // Not all agents: those that do not lead are not here.
    co_await net_.open(leaders);
    const Greeting greeting = greeting_of(op_, bytes_);
    group_.for_other_hosts([&](int h) {
      net_.greet(leader(h), greeting);
      net_.send(leader(h), own, bytes_);
      net_.expect(leader(h), greeting);
      net_.receive(leader(h), sums + static_cast<size_t>(h) * bytes_, bytes_);
    });
    co_await net_.idle();
  }

  void sum_hosts(std::byte* sums, std::byte* result) {
    const Place own(sums, 0);
    const Place target(result, 0);
    const auto sum = [&](int h, size_t at) { return sums + static_cast<size_t>(h) * bytes_ + at; };
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
  const bool half = op.dtype == Dtype::kF16 || op.dtype == Dtype::kBF16;
  // A sum that is to become an average might not fit into 16 bits.
  if (half && sums && op.scale.post < 1.0) return {op.scale, {}};
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

bool goes_at_once(const WideGroup& group, size_t bytes) {
  constexpr size_t kMost = 64 << 10;
  return bytes <= Region::kSmallBytes && bytes * static_cast<size_t>(group.hosts() - 1) <= kMost;
}

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
