#pragma once

#include <memory>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/inter_host/cut.h"
#include "collectives/inter_host/inter_host.h"
#include "collectives/range_reduce.h"

namespace sirtaki {

/// The destination of a reduction's results.
struct Target {
  const Segments* out;  ///< null: nowhere on this member
  bool scattered;       ///< every member receives only its own part
  int root;             ///< only this member's host receives them; -1: all hosts
};

/// The work that the members of a host share in a large reduction among hosts: each sums some parts
/// of a chunk through shared memory, and has the results of these parts for all.
class HostStage {
 public:
  HostStage(InterHostGroup& group, const Op& op, const Streams& in, const Target& target,
            const Cut& cut)
      : group_(group),
        local_(group.local()),
        cut_(cut),
        form_(op),
        reduce_(op, scales_of(op).on_host, group.local().size()),
        shares_(group.shares()),
        writes_(target.out != nullptr),
        in_place_(writes_ && !form_.encodes()),
        scattered_(target.scattered),
        out_(writes_ ? *target.out : kNothing, form_) {
    for (const Segments& stream : in) sources_.emplace_back(stream, form_);
    is_sum_ = !shares_ && (op.dtype == Dtype::kBool || scales_of(op).on_host == Scale{});
    reads_input_ = is_sum_ && !form_.encodes();
    sums_bytes_ = reads_input_ ? 0 : cut.chunk_bytes();
    results_bytes_ = shares_ || in_place_ ? 0 : cut.chunk_bytes();
    // Not value-initialised, so that the pages are touched only on use.
    buffer_ = std::unique_ptr<std::byte[]>(new std::byte[cut.depth() * chunk_memory()]);
  }

  /// Gives the others the parts of a chunk that they sum.
  Task copy_out(uint32_t q) {
    if (!shares_) co_return;
    if (q >= cut_.depth()) co_await local_.all_consumed(q + 1 - cut_.depth());
    std::byte* slot = input_slot(local_.rank(), q);
    for (int lane = 0; lane < cut_.lanes(); ++lane) {
      if (cut_.member(lane, group_.host()) == group_.rank() && !form_.encodes()) continue;
      cut_.walk(q, lane, 0, group_.hosts(), [&](const Part& part) {
        sources_[part.stream].copy_to(slot + part.offset, part.range);
      });
    }
    local_.publish();
  }

  /// Computes this host's sum of a part, once all members have copied out.
  void sum(uint32_t q, const Part& part) {
    if (reads_input_) return;
    const Place to = sum_place(q, part);
    const auto source = [&](int m, size_t at) {
      return input_slot(m, q) + part.offset + (at - part.range.begin);
    };
    if (!form_.encodes()) {
      return reduce_.run(part.range, sources_[part.stream], local_.rank(), to, source);
    }
    if (!shares_) sources_[part.stream].copy_to(chunk_memory(q) + part.offset, part.range);
    if (is_sum_) return;
    const Place own =
        shares_ ? Place(source(local_.rank(), part.range.begin), part.range.begin) : to;
    reduce_.run(part.range, own, local_.rank(), to, source);
  }
  Place sum_place(uint32_t q, const Part& part) {
    if (reads_input_) return Place(sources_[part.stream]);
    return Place(chunk_memory(q) + part.offset, part.range.begin);
  }

  /// The place where the result of a part is received, and sent from.
  Place result_place(uint32_t q, const Part& part) {
    if (shares_) return Place(result_slot(local_.rank(), q) + part.offset, part.range.begin);
    if (in_place_) return Place(out_);
    return Place(result_memory(q) + part.offset, part.range.begin);
  }
  /// The place where the result of this member's part is computed, and used again.
  Place own_place(uint32_t q, const Part& part) {
    return in_place_ ? Place(out_) : result_place(q, part);
  }
  std::byte* own_copy(uint32_t q, const Part& part) const {
    return shares_ && in_place_ && !scattered_ ? result_slot(local_.rank(), q) + part.offset
                                               : nullptr;
  }

  /// Announces that all results that this member has for the others are complete.
  void finish() {
    if (shares_) local_.consume();
  }
  Task copy_in(uint32_t q) {
    if (!writes_ || scattered_ || (!shares_ && in_place_)) co_return;
    for (int lane = 0; lane < cut_.lanes(); ++lane) {
      const int owner = group_.index_of(cut_.member(lane, group_.host()));
      if (owner != local_.rank()) co_await local_.consumed(owner, q + 1);
      const std::byte* const chunk = shares_ ? result_slot(owner, q) : result_memory(q);
      // A member already has the result of its own block, unless it is encoded.
      const int own = owner == local_.rank() && in_place_ ? 1 : 0;
      cut_.walk(q, lane, group_.host() + own, group_.hosts() - own,
                [&](const Part& part) { out_.copy_from(chunk + part.offset, part.range); });
    }
  }

 private:
  static inline const Segments kNothing;

  size_t chunk_memory() const { return sums_bytes_ + results_bytes_; }
  std::byte* chunk_memory(uint32_t q) const {
    return buffer_.get() + q % cut_.depth() * chunk_memory();
  }
  std::byte* result_memory(uint32_t q) const { return chunk_memory(q) + sums_bytes_; }
  std::byte* input_slot(int local_member, uint32_t q) const {
    return local_.stream_slots(local_member) + q % cut_.depth() * cut_.chunk_bytes();
  }
  std::byte* result_slot(int local_member, uint32_t q) const {
    return input_slot(local_member, q) + cut_.depth() * cut_.chunk_bytes();
  }

  InterHostGroup& group_;
  Group& local_;
  const Cut& cut_;
  Form form_;
  RangeReduce reduce_;
  bool shares_;
  bool writes_;
  bool in_place_;  ///< results arrive at their destination, and need not be decoded
  bool scattered_;
  bool is_sum_ = false;       ///< this member contributes this host's sum
  bool reads_input_ = false;  ///< and that is the unencoded input itself
  std::vector<Cursor> sources_;
  Cursor out_;
  size_t sums_bytes_ = 0;
  size_t results_bytes_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
};

}  // namespace sirtaki
