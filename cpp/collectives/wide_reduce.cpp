#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "collectives/place.h"
#include "collectives/range_reduce.h"
#include "collectives/wide.h"

namespace sirtaki {
namespace {

constexpr size_t kLeastSlice = 32 << 10;
constexpr size_t kMostSlice = 128 << 10;

/// What of a chunk a member works on.
struct Part {
  size_t stream;  ///< of the inputs
  Range range;    ///< in that stream, and in the output
  size_t offset;  ///< in the slot or buffer of the chunk
};

/// How the data are cut; the same on all members, for bytes cross the network without tags.
class Cut {
 public:
  /// `blocks`: each member has a stream of its own, else all share one.
  Cut(const WideGroup& group, size_t bytes, size_t chunk_bytes, bool blocks)
      : members_(group.size()), blocks_(blocks) {
    const auto n = static_cast<size_t>(members_);
    // Shared memory is scarce; else so much is under way that nobody stops when a peer does for a
    // moment.
    const bool shared = group.size() > group.hosts();
    ahead_ = shared ? 2 : 8;
    const size_t total = blocks ? bytes * n : bytes;
    const size_t few = total / n / 8;
    const size_t slice = std::min(std::clamp(few, kLeastSlice, kMostSlice), chunk_bytes);
    const size_t most = group.stream_bytes() / depth() / 2;
    const size_t wanted = shared ? std::min(slice * n, most) : slice * n;
    // Room for a block of each member.
    chunk_ = std::max(wanted, n * kSliceAlign) / kSliceAlign * kSliceAlign;
    if (shared && chunk_ > most) {
      throw Error(ErrorCode::kInvalid,
                  std::to_string(n) + " ranks, several on a host, are more than can reduce large " +
                      "tensors together; use process sets of at most " +
                      std::to_string(most / kSliceAlign));
    }
    block_ = chunk_ / n / kSliceAlign * kSliceAlign;
    chunks_ = Chunks(bytes, blocks ? block_ : chunk_);
  }

  /// Chunks handed to the network before the first of them is waited for.
  uint32_t ahead() const { return ahead_; }
  /// Chunks in work at a time: one copied out and one summed on the host, those under way in the
  /// first and in the second exchange, and one copied in.
  uint32_t depth() const { return 2 * ahead_ + 3; }
  size_t chunk_bytes() const { return chunk_; }
  /// No part is longer.
  size_t part_bytes() const { return chunk_ / static_cast<size_t>(members_) + 2 * kSliceAlign; }
  uint32_t count() const { return chunks_.count(); }

  Part part(uint32_t q, int member, const Streams& in) const {
    const auto m = static_cast<size_t>(member);
    if (blocks_) return {m, chunks_.range(q, in[m].bytes()), m * block_};
    const Range chunk = chunks_.range(q);
    const Range slice = slice_of(chunk.bytes(), members_, member);
    return {0, {chunk.begin + slice.begin, chunk.begin + slice.end}, slice.begin};
  }

 private:
  int members_;
  bool blocks_;
  uint32_t ahead_ = 0;
  size_t chunk_ = 0;
  size_t block_ = 0;
  Chunks chunks_{0, 1};
};

/// Where the results go.
struct Target {
  const Segments* out;  ///< null: nowhere on this member
  bool scattered;       ///< every member only gets its own part
  int root;             ///< only this member's host gets them; -1: all hosts
};

/// Reductions of large messages, chunk by chunk. Every member has a part of each chunk. The members
/// of a host sum its parts through shared memory and send each sum to the member whose part it is;
/// that one adds the hosts' sums, in the hosts' order, and sends the result to one member of each
/// host, which shares it with the others. These steps work on successive chunks, so the network,
/// the shared memory and the reduction overlap.
class WideReduce {
 public:
  WideReduce(WideGroup& group, const Op& op, size_t bytes, const Streams& in, const Target& target)
      : group_(group),
        local_(group.local()),
        net_(group.sockets()),
        op_(op),
        bytes_(bytes),
        in_(in),
        target_(target),
        reduce_on_host_(op, scales_of(op).on_host, group.local().size()),
        reduce_among_hosts_(op, scales_of(op).among_hosts, group.hosts()),
        cut_(group, bytes, op.chunk_bytes, target.scattered),
        depth_(cut_.depth()),
        shares_(group.shares()),
        sources_(in.begin(), in.end()),
        out_(target.out != nullptr ? *target.out : kNothing),
        flights_(depth_) {
    const Scale scale = scales_of(op).on_host;
    reads_input_ =
        !shares_ && (op.dtype == Dtype::kBool || (scale.pre == 1.0 && scale.post == 1.0));
    wards_ = group.wards();
    wards_.push_back(group.rank());
    make_buffers();
  }

  Task run() {
    co_await greet();
    if (shares_) co_await local_.begin_stream();
    const uint32_t count = cut_.count();
    const uint32_t ahead = cut_.ahead();
    const auto at = [&](uint32_t step, uint32_t lag) { return step >= lag && step - lag < count; };
    for (uint32_t step = 0; step < count + depth_; ++step) {
      if (at(step, 0) && shares_) {
        if (step >= depth_) co_await local_.all_consumed(step + 1 - depth_);
        copy_out(step);
      }
      if (at(step, 1)) {
        co_await net_.all_reached(flight(step - 1).sent, step - 1);
        if (shares_) co_await local_.all_published(step);
        sum_host(step - 1);
      }
      if (at(step, 1 + ahead)) {
        const uint32_t q = step - 1 - ahead;
        co_await net_.all_reached(flight(q).sums, q);
        sum_hosts(q);
      }
      if (at(step, 1 + 2 * ahead)) {
        const uint32_t q = step - 1 - 2 * ahead;
        co_await net_.all_reached(flight(q).results, q);
        if (shares_) local_.consume();
      }
      if (at(step, 2 + 2 * ahead) && shares_ && writes() && !target_.scattered) {
        co_await copy_in(step - 2 - 2 * ahead);
      }
    }
    co_await net_.idle();
    if (shares_) local_.end();
  }

 private:
  static const Segments kNothing;

  /// What waits for the network in one of the chunks under way.
  struct Flight {
    std::vector<Mark> sent, sums, results;
  };

  void make_buffers() {
    const auto others = static_cast<size_t>(group_.hosts() - 1);
    sums_bytes_ = reads_input_ ? 0 : cut_.chunk_bytes();
    results_bytes_ = shares_ || writes() ? 0 : cut_.chunk_bytes();
    const size_t each = sums_bytes_ + results_bytes_ + others * cut_.part_bytes();
    // Not value-initialised: the pages are touched when they are used.
    buffer_ = std::unique_ptr<std::byte[]>(new std::byte[depth_ * each]);
  }

  Task greet() {
    co_await group_.open();
    const Greeting greeting = greeting_of(op_, bytes_);
    std::vector<int> peers(group_.wards());
    for_other_hosts([&](int host) {
      const int agent = group_.agent(host, group_.rank());
      if (std::find(peers.begin(), peers.end(), agent) == peers.end()) peers.push_back(agent);
    });
    for (int peer : peers) {
      net_.greet(group_.world_rank(peer), greeting);
      net_.expect(group_.world_rank(peer), greeting);
    }
  }

  template <class Visit>
  void for_other_hosts(Visit visit) const {
    for (int h = 0; h < group_.hosts(); ++h) {
      if (h != group_.host()) visit(h);
    }
  }

  bool writes() const { return target_.out != nullptr; }
  bool gets_results(int host) const {
    if (target_.scattered) return false;
    return target_.root < 0 || host == group_.host_of(target_.root);
  }

  // ---- Memory ----

  Flight& flight(uint32_t q) { return flights_[q % depth_]; }
  std::byte* flight_memory(uint32_t q) const {
    const auto others = static_cast<size_t>(group_.hosts() - 1);
    const size_t each = sums_bytes_ + results_bytes_ + others * cut_.part_bytes();
    return buffer_.get() + q % depth_ * each;
  }
  /// What the other host's members sum up to, of the own part.
  std::byte* received(uint32_t q, int host) const {
    const auto index = static_cast<size_t>(host < group_.host() ? host : host - 1);
    return flight_memory(q) + sums_bytes_ + results_bytes_ + index * cut_.part_bytes();
  }
  std::byte* input_slot(int local_member, uint32_t q) const {
    return local_.stream_slots(local_member) + q % depth_ * cut_.chunk_bytes();
  }
  std::byte* result_slot(int local_member, uint32_t q) const {
    return local_.stream_slots(local_member) + (depth_ + q % depth_) * cut_.chunk_bytes();
  }
  /// This host's sum of a part.
  Place sum_place(uint32_t q, const Part& part) const {
    if (reads_input_) return Place(sources_[part.stream]);
    return Place(flight_memory(q) + part.offset, part.range.begin);
  }
  /// The result of a part, as it is sent or received.
  Place result_place(uint32_t q, const Part& part) const {
    if (shares_) return Place(result_slot(local_.rank(), q) + part.offset, part.range.begin);
    if (writes()) return Place(out_);
    return Place(flight_memory(q) + sums_bytes_ + part.offset, part.range.begin);
  }

  // ---- Steps ----

  void copy_out(uint32_t q) {
    std::byte* slot = input_slot(local_.rank(), q);
    for (int m = 0; m < group_.size(); ++m) {
      if (group_.agent(group_.host(), m) == group_.rank()) continue;
      const Part part = cut_.part(q, m, in_);
      sources_[part.stream].walk(part.range, [&](const std::byte* from, size_t bytes, size_t at) {
        std::memcpy(slot + part.offset + (at - part.range.begin), from, bytes);
      });
    }
    local_.publish();
  }

  void sum_host(uint32_t q) {
    Flight& flight = this->flight(q);
    flight = {};
    for (int member : wards_) {
      const Part part = cut_.part(q, member, in_);
      if (!reads_input_) sum_part(q, part);
      if (member == group_.rank()) continue;
      send(flight, member, sum_place(q, part), part.range);
      net_.start();
    }
    const size_t own = cut_.part(q, group_.rank(), in_).range.bytes();
    for_other_hosts([&](int host) {
      const int agent = group_.world_rank(group_.agent(host, group_.rank()));
      flight.sums.push_back(net_.receive(agent, received(q, host), own));
    });
  }

  void sum_part(uint32_t q, const Part& part) {
    const Place to(flight_memory(q) + part.offset, part.range.begin);
    reduce_on_host_.run(
        part.range, sources_[part.stream], local_.rank(), to,
        [&](int m, size_t at) { return input_slot(m, q) + part.offset + (at - part.range.begin); });
  }

  void sum_hosts(uint32_t q) {
    Flight& flight = this->flight(q);
    const Part part = cut_.part(q, group_.rank(), in_);
    add_up(q, part);
    for_other_hosts([&](int host) {
      if (!gets_results(host)) return;
      send(flight, group_.agent(host, group_.rank()), result_place(q, part), part.range);
    });
    net_.start();
    if (!gets_results(group_.host())) return;
    for (int member : group_.wards()) {
      const Part ward = cut_.part(q, member, in_);
      result_place(q, ward).walk(ward.range, [&](std::byte* to, size_t bytes, size_t) {
        flight.results.push_back(net_.receive(group_.world_rank(member), to, bytes));
      });
    }
  }

  void add_up(uint32_t q, const Part& part) {
    const bool copies = shares_ && writes() && !target_.scattered;
    std::byte* shared = copies ? result_slot(local_.rank(), q) + part.offset : nullptr;
    const Place sum = sum_place(q, part);
    const Place result = writes() ? Place(out_) : result_place(q, part);
    const auto source = [&](int host, size_t at) {
      return received(q, host) + (at - part.range.begin);
    };
    reduce_among_hosts_.run(part.range, sum, group_.host(), result, source, shared);
  }

  Task copy_in(uint32_t q) {
    for (int m = 0; m < group_.size(); ++m) {
      if (m == group_.rank()) continue;
      const int agent = group_.index_of(group_.agent(group_.host(), m));
      if (agent != local_.rank()) co_await local_.consumed(agent, q + 1);
      const Part part = cut_.part(q, m, in_);
      const std::byte* from = result_slot(agent, q) + part.offset;
      out_.walk(part.range, [&](std::byte* to, size_t bytes, size_t at) {
        std::memcpy(to, from + (at - part.range.begin), bytes);
      });
    }
  }

  void send(Flight& flight, int member, const Place& place, Range range) {
    place.walk(range, [&](const std::byte* from, size_t bytes, size_t) {
      flight.sent.push_back(net_.send(group_.world_rank(member), from, bytes));
    });
  }

  WideGroup& group_;
  Group& local_;
  Sockets& net_;
  const Op& op_;
  size_t bytes_;
  const Streams& in_;
  Target target_;
  RangeReduce reduce_on_host_;
  RangeReduce reduce_among_hosts_;
  Cut cut_;
  uint32_t depth_;
  bool shares_;
  bool reads_input_ = false;  ///< the input is this host's sum already
  std::vector<int> wards_;    ///< and the member itself
  std::vector<Locator> sources_;
  Locator out_;
  size_t sums_bytes_ = 0;
  size_t results_bytes_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
  std::vector<Flight> flights_;
};

const Segments WideReduce::kNothing;

}  // namespace

Task allreduce(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  if (in.bytes() == 0) co_return;
  if (goes_at_once(group, in.bytes())) {
    co_await reduce_at_once(group, op, in, &out);
    co_return;
  }
  const Streams stream{in};
  WideReduce reduction(group, op, in.bytes(), stream, {&out, false, -1});
  co_await reduction.run();
}

Task reduce(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  const Segments* target = group.rank() == op.root ? &out : nullptr;
  if (in.bytes() == 0) co_return;
  if (goes_at_once(group, in.bytes())) {
    co_await reduce_at_once(group, op, in, target);
    co_return;
  }
  const Streams stream{in};
  WideReduce reduction(group, op, in.bytes(), stream, {target, false, op.root});
  co_await reduction.run();
}

Task reducescatter(WideGroup& group, const Op& op, const Streams& in, const Segments& out) {
  if (op.longest == 0) co_return;
  WideReduce reduction(group, op, op.longest, in, {&out, true, -1});
  co_await reduction.run();
}

}  // namespace sirtaki
