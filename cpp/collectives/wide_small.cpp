#include <algorithm>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/place.h"
#include "collectives/range_reduce.h"
#include "collectives/wide.h"

namespace sirtaki {
namespace {

/// On each host the first member adds up what the others put into their small slots, exchanges that
/// with the first members of all other hosts, and hands out the sum.
class Leaders {
 public:
  Leaders(WideGroup& group, const Op& op, size_t bytes)
      : group_(group),
        local_(group.local()),
        net_(group.sockets()),
        op_(op),
        scales_(scales_of(op)),
        bytes_(bytes) {}

  Task run(const Segments& in, const Segments* out) {
    int which = 0;
    if (group_.shares()) which = co_await local_.begin_small();
    if (local_.rank() == 0) {
      co_await lead(in, out, which);
    } else {
      Cursor(in).copy_to(local_.small_slot(local_.rank(), which), {0, bytes_});
      local_.publish();
      co_await local_.published(0, 1);
      if (out != nullptr) Cursor(*out).copy_from(local_.small_slot(0, which), {0, bytes_});
    }
    if (group_.shares()) local_.end();
  }

 private:
  Task lead(const Segments& in, const Segments* out, int which) {
    if (group_.shares()) co_await local_.all_published(1);
    const auto hosts = static_cast<size_t>(group_.hosts());
    // Each host's sum, then the result.
    std::vector<std::byte> sums((hosts + 1) * bytes_);
    std::byte* own = sums.data() + static_cast<size_t>(group_.host()) * bytes_;
    std::byte* result = sums.data() + hosts * bytes_;
    if (bytes_ > 0) sum_host(in, own, which);
    co_await exchange(sums.data(), own);
    if (bytes_ > 0) sum_hosts(sums.data(), result);
    if (out != nullptr) Cursor(*out).copy_from(result, {0, bytes_});
    if (!group_.shares()) co_return;
    if (bytes_ > 0) std::memcpy(local_.small_slot(0, which), result, bytes_);
    local_.publish();
  }

  void sum_host(const Segments& in, std::byte* to, int which) {
    Cursor own(in);
    const Place target(to, 0);
    const auto slot = [&](int m, size_t at) { return local_.small_slot(m, which) + at; };
    RangeReduce(op_, scales_.on_host, local_.size()).run({0, bytes_}, own, 0, target, slot);
  }

  Task exchange(std::byte* sums, const std::byte* own) {
    std::vector<int> leaders;
    for (int h = 0; h < group_.hosts(); ++h) {
      if (h != group_.host()) leaders.push_back(group_.world_rank(group_.members_on(h)[0]));
    }
    // Not all agents: those that do not lead are not here.
    co_await net_.open(leaders);
    const Greeting greeting = greeting_of(op_, bytes_);
    for (int h = 0, next = 0; h < group_.hosts(); ++h) {
      if (h == group_.host()) continue;
      const int leader = leaders[static_cast<size_t>(next++)];
      net_.greet(leader, greeting);
      net_.send(leader, own, bytes_);
      net_.expect(leader, greeting);
      net_.receive(leader, sums + static_cast<size_t>(h) * bytes_, bytes_);
    }
    co_await net_.idle();
  }

  void sum_hosts(std::byte* sums, std::byte* result) {
    const Place own(sums, 0);
    const Place target(result, 0);
    const auto sum = [&](int h, size_t at) { return sums + static_cast<size_t>(h) * bytes_ + at; };
    RangeReduce(op_, scales_.among_hosts, group_.hosts()).run({0, bytes_}, own, 0, target, sum);
  }

  WideGroup& group_;
  Group& local_;
  Sockets& net_;
  const Op& op_;
  HostScales scales_;
  size_t bytes_;
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

HostScales scales_of(const Op& op) {
  const bool sums = op.reduce == ReduceOp::kSum || op.reduce == ReduceOp::kAverage;
  const bool half = op.dtype == Dtype::kF16 || op.dtype == Dtype::kBF16;
  // A sum that is to become an average might not fit into 16 bits.
  if (half && sums && op.scale.post < 1.0) return {op.scale, {}};
  return {{op.scale.pre, 1.0}, {1.0, op.scale.post}};
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
