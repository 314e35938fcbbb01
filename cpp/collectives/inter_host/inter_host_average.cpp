#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/range_reduce.h"

namespace sirtaki {
namespace {

constexpr size_t kChunk = 4 << 20;

/// Averages of integers. A host's sum might not fit into their type, so each member receives its
/// part of every member's numbers, chunk by chunk, and averages that.
class Average {
 public:
  Average(InterHostGroup& group, const Op& op, const Streams& in, const Streams& out)
      : group_(group),
        op_(op),
        members_(static_cast<size_t>(group.size())),
        scattered_(traits_of(op.kind).layout == Layout::kDealt),
        chunks_(op.longest, scattered_ ? block() : kChunk),
        sources_(in.begin(), in.end()),
        target_(out[0]),
        reduce_(op, op.scale, group.size()),
        room_(scattered_ ? block() : kChunk / members_ + 2 * kSliceAlign),
        numbers_(new std::byte[(members_ + 1) * std::min(room_, op.longest)]) {
    for (const Segments& stream : in) lengths_.push_back(stream.bytes());
  }

  Task run() {
    for (uint32_t q = 0; q < chunks_.count(); ++q) {
      const Range own = part(q, group_.rank());
      co_await exchange(q, own);
      const auto source = [&](int m, size_t at) {
        return numbers_.get() + static_cast<size_t>(m) * own.bytes() + (at - own.begin);
      };
      if (scattered_) {
        reduce_.run(own, target_, source);
      } else {
        const Place to(result(own), own.begin);
        reduce_.run(own, to, source);
        co_await share(q, own);
      }
    }
  }

 private:
  size_t block() const {
    return std::max(kChunk / members_ / kSliceAlign, size_t{1}) * kSliceAlign;
  }
  std::byte* result(Range own) const { return numbers_.get() + members_ * own.bytes(); }

  Range part(uint32_t q, int member) const {
    return scattered_ ? chunks_.range(q, lengths_[static_cast<size_t>(member)])
                      : slice_of(chunks_.range(q), group_.size(), member);
  }

  /// Receives this member's part of all members' numbers.
  Task exchange(uint32_t q, Range own) {
    Op op = moving(Kind::kAlltoall, q);
    Streams sent(members_);
    Streams received(members_);
    for (size_t m = 0; m < members_; ++m) {
      sources_[scattered_ ? m : 0].walk(
          part(q, static_cast<int>(m)),
          [&](std::byte* data, size_t bytes, size_t) { sent[m].add(data, bytes); });
      received[m].add(numbers_.get() + m * own.bytes(), own.bytes());
    }
    co_await carry_out(group_, op, sent, received);
  }

  /// Sends the result to all members, or to the root.
  Task share(uint32_t q, Range own) {
    const bool to_root = traits_of(op_.kind).rooted;
    Op op = moving(to_root ? Kind::kGather : Kind::kAllgather, q);
    Streams given(1);
    given[0].add(result(own), own.bytes());
    Streams received(members_);
    for (size_t m = 0; m < members_ && (!to_root || group_.rank() == op_.root); ++m) {
      target_.walk(part(q, static_cast<int>(m)),
                   [&](std::byte* data, size_t bytes, size_t) { received[m].add(data, bytes); });
    }
    co_await carry_out(group_, op, given, received);
  }

  Op moving(Kind kind, uint32_t q) const {
    Op op = op_;
    op.kind = kind;
    op.longest = 0;
    for (int m = 0; m < group_.size(); ++m) op.longest = std::max(op.longest, part(q, m).bytes());
    return op;
  }

  InterHostGroup& group_;
  const Op& op_;
  const size_t members_;
  const bool scattered_;
  const Chunks chunks_;
  std::vector<Cursor> sources_;
  std::vector<size_t> lengths_;
  Cursor target_;
  RangeReduce reduce_;
  const size_t room_;                           ///< of a member's part
  const std::unique_ptr<std::byte[]> numbers_;  ///< that part of each member, then the result
};

}  // namespace

Task inter_host_average(InterHostGroup& group, const Op& op, const Streams& in,
                        const Streams& out) {
  Average average(group, op, in, out);
  co_await average.run();
}

}  // namespace sirtaki
