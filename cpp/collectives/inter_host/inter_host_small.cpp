#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/inter_host/exchange_plan.h"
#include "collectives/inter_host/inter_host.h"
#include "collectives/range_reduce.h"

namespace sirtaki {
namespace {

/// On each host the first member adds up the others' inputs, receives the sums of all hosts from
/// their first members, adds them, and distributes the result.
class Leaders {
 public:
  Leaders(InterHostGroup& group, const Op& op, size_t bytes)
      : group_(group),
        local_(group.local()),
        net_(group.net()),
        op_(op),
        form_(op),
        scales_(scales_of(op)),
        bytes_(bytes) {}

  Task run(const Segments& in, const Segments* out) {
    if (group_.shares()) which_ = co_await local_.begin_small();
    if (local_.rank() == 0) {
      co_await lead(in, out);
    } else {
      Cursor(in, form_).copy_to(slot(local_.rank()), {0, bytes_});
      local_.publish();
      co_await local_.published(0, 1);
      if (out != nullptr) Cursor(*out, form_).copy_from(slot(0), {0, bytes_});
    }
    if (group_.shares()) local_.end();
  }

 private:
  Task lead(const Segments& in, const Segments* out) {
    if (group_.shares()) co_await local_.all_published(1);
    const auto hosts = static_cast<size_t>(group_.hosts());
    // Each host's sum, then the result.
    std::vector<std::byte> sums((hosts + 1) * bytes_);
    std::byte* result = sums.data() + hosts * bytes_;
    if (bytes_ > 0) sum_host(in, sums.data());
    co_await exchange(sums.data());
    if (bytes_ > 0) sum_hosts(sums, result);
    if (out != nullptr) Cursor(*out, form_).copy_from(result, {0, bytes_});
    if (!group_.shares()) co_return;
    std::copy_n(result, bytes_, slot(local_.rank()));
    local_.publish();
  }

  std::byte* slot(int local_member) const { return local_.small_slot(local_member, which_); }

  void sum_host(const Segments& in, std::byte* to) {
    const Place target(to, 0);
    const auto source = [&](int m, size_t at) { return slot(m) + at; };
    RangeReduce reduce(op_, scales_.on_host, local_.size());
    if (!form_.encodes()) {
      Cursor own(in);
      return reduce.run({0, bytes_}, own, 0, target, source);
    }
    Cursor(in, form_).copy_to(to, {0, bytes_});
    const bool is_sum = !group_.shares() && scales_.on_host == Scale{};
    if (!is_sum) reduce.run({0, bytes_}, target, 0, target, source);
  }

  /// The sum of each host; this host's comes first, and the others follow in the order of the
  /// circle.
  std::byte* sum_of(std::vector<std::byte>& sums, int host) const {
    const int hosts = group_.hosts();
    return sums.data() + static_cast<size_t>((host - group_.host() + hosts) % hosts) * bytes_;
  }
  int leader_rank(int distance) const {
    const int host = (group_.host() + distance + group_.hosts()) % group_.hosts();
    return group_.world_rank(group_.members_on(host)[0]);
  }

  /// Each step passes on all sums that this host knows. A barrier moves no bytes, so each step has
  /// its own greeting.
  Task exchange(std::byte* sums) {
    const int radix = radix_for(problem_of(group_, op_));
    std::vector<ExchangeStep> steps = exchange_steps(group_.hosts(), radix);
    std::reverse(steps.begin(), steps.end());
    std::set<int> peers;
    for (const ExchangeStep& step : steps) {
      for (int away = step.kept; away < step.had; away += step.kept) {
        peers.insert({leader_rank(away), leader_rank(-away)});
      }
    }
    co_await net_.open(std::vector<int>(peers.begin(), peers.end()));
    const Greeting greeting = greeting_of(op_, bytes_);
    for (const ExchangeStep& step : steps) {
      for (int away = step.kept; away < step.had; away += step.kept) {
        const auto bytes = static_cast<size_t>(step.blocks(away)) * bytes_;
        net_.greet(leader_rank(-away), greeting);
        net_.expect(leader_rank(away), greeting);
        net_.send(leader_rank(-away), sums, bytes);
        net_.receive(leader_rank(away), sums + static_cast<size_t>(away) * bytes_, bytes);
      }
      co_await net_.idle();
    }
  }

  /// Adds the sums in the order of hosts.
  void sum_hosts(std::vector<std::byte>& sums, std::byte* result) {
    const Place target(result, 0);
    const auto sum = [&](int h, size_t at) { return sum_of(sums, h) + at; };
    RangeReduce(op_, scales_.among_hosts, group_.hosts()).run({0, bytes_}, target, sum);
  }

  InterHostGroup& group_;
  Group& local_;
  InterHostNet& net_;
  const Op& op_;
  Form form_;
  HostScales scales_;
  size_t bytes_;  ///< in that form
  int which_ = 0;
};

}  // namespace

Greeting greeting_of(const Op& op, size_t bytes) {
  return {static_cast<uint8_t>(op.kind),
          static_cast<uint8_t>(op.dtype),
          static_cast<uint8_t>(op.reduce),
          static_cast<uint8_t>(op.codec),
          op.set,
          bytes};
}

void send_stream(InterHostNet& net, int rank, const Segments& stream) {
  for (const Segment& piece : stream.list()) net.send(rank, piece.data, piece.bytes);
}

void receive_stream(InterHostNet& net, int rank, const Segments& stream) {
  for (const Segment& piece : stream.list()) net.receive(rank, piece.data, piece.bytes);
}

void add_gathered(const Op& op, std::span<const int> on_hosts, const std::byte* numbers,
                  size_t bytes, std::byte* result) {
  const HostScales scales = scales_of(op);
  const bool encodes = Form(op).encodes();
  std::vector<std::byte> sums(on_hosts.size() * bytes);
  std::byte* to = sums.data();
  for (const int members : on_hosts) {
    const auto source = [&](int m, size_t at) {
      return numbers + static_cast<size_t>(m) * bytes + at;
    };
    const Scale& scale = scales.on_host;
    const bool is_sum = encodes && members == 1 && scale == Scale{};
    const Place target(to, 0);
    if (is_sum) {
      std::copy_n(numbers, bytes, to);
    } else {
      RangeReduce(op, scale, members).run({0, bytes}, target, source);
    }
    numbers += static_cast<size_t>(members) * bytes;
    to += bytes;
  }
  const Place target(result, 0);
  RangeReduce(op, scales.among_hosts, static_cast<int>(on_hosts.size()))
      .run({0, bytes}, target,
           [&](int h, size_t at) { return sums.data() + static_cast<size_t>(h) * bytes + at; });
}

HostScales scales_of(const Op& op) {
  const bool sums = op.reduce == ReduceOp::kSum || op.reduce == ReduceOp::kAverage;
  const Codec* const codec = find_codec(op.codec);
  // The sum before the division of an average might not fit into 16 bits.
  const bool is_short = is_half(codec != nullptr ? codec->dtype : op.dtype);
  if (is_short && sums && op.scale.post < 1.0) return {op.scale, {}};
  return {{op.scale.pre, 1.0}, {1.0, op.scale.post}};
}

Task open(InterHostGroup& group, const std::vector<int>& to, const std::vector<int>& from,
          Greeting greeting) {
  const auto ranks_of = [&](const std::vector<int>& members) {
    std::vector<int> ranks;
    for (int member : members) ranks.push_back(group.world_rank(member));
    std::ranges::sort(ranks);
    ranks.erase(std::unique(ranks.begin(), ranks.end()),
                ranks.end());  // Clang 14 has no ranges::unique
    return ranks;
  };
  const std::vector<int> takers = ranks_of(to);
  const std::vector<int> givers = ranks_of(from);
  std::vector<int> peers;
  std::ranges::set_union(takers, givers, std::back_inserter(peers));
  co_await group.net().open(std::move(peers));
  for (int rank : takers) group.net().greet(rank, greeting);
  for (int rank : givers) group.net().expect(rank, greeting);
}

Problem problem_of(const InterHostGroup& group, const Op& op) {
  return {.kind = op.kind,
          .bytes = op.longest,
          .members = group.size(),
          .hosts = group.hosts(),
          .lanes = group.lanes(),
          .slots = group.stream_bytes(),
          .chunk_bytes = op.chunk_bytes,
          .rules = group.rules()};
}

Task reduce_at_once(InterHostGroup& group, const Op& op, const Segments& in, const Segments* out) {
  Leaders leaders(group, op, Form(op).bytes(in));
  co_await leaders.run(in, out);
}

Task inter_host_barrier(InterHostGroup& group, const Op& op, const Streams&, const Streams&) {
  const Segments nothing;
  co_await reduce_at_once(group, op, nothing, nullptr);
}

}  // namespace sirtaki
