#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/range_reduce.h"
#include "collectives/wide/cut.h"
#include "collectives/wide/wide.h"

namespace sirtaki {

/// Where the results of a reduction go.
struct Target {
  const Segments* out;  ///< null: nowhere on this member
  bool scattered;       ///< every member only gets its own part
  int root;             ///< only this member's host gets them; -1: all hosts
};

/// What the members of a host do together in a large reduction among hosts: each sums up some parts
/// of a chunk through shared memory, and has the results of these parts for all.
class HostStage {
 public:
  HostStage(WideGroup& group, const Op& op, const Streams& in, const Target& target, const Cut& cut)
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
    const Scale scale = scales_of(op).on_host;
    const bool scales = scale.pre != 1.0 || scale.post != 1.0;
    is_sum_ = !shares_ && (op.dtype == Dtype::kBool || !scales);
    reads_input_ = is_sum_ && !form_.encodes();
    sums_bytes_ = reads_input_ ? 0 : cut.chunk_bytes();
    results_bytes_ = shares_ || in_place_ ? 0 : cut.chunk_bytes();
    // Not value-initialised: the pages are touched when they are used.
    buffer_ = std::unique_ptr<std::byte[]>(new std::byte[cut.depth() * chunk_memory()]);
  }

  /// Gives the others what they sum up of a chunk.
  Task copy_out(uint32_t q) {
    if (!shares_) co_return;
    if (q >= cut_.depth()) co_await local_.all_consumed(q + 1 - cut_.depth());
    std::byte* slot = input_slot(local_.rank(), q);
    for (int p = 0; p < cut_.parts(); ++p) {
      if (cut_.dealer(p) == group_.rank() && !form_.encodes()) continue;
      const Part part = cut_.part(q, p);
      sources_[part.stream].copy_to(slot + part.offset, part.range);
    }
    local_.publish();
  }

  /// Makes this host's sum of a part, once all have copied out.
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

  /// Where the result of a part is received, and sent from.
  Place result_place(uint32_t q, const Part& part) {
    if (shares_) return Place(result_slot(local_.rank(), q) + part.offset, part.range.begin);
    if (in_place_) return Place(out_);
    return Place(result_memory(q) + part.offset, part.range.begin);
  }
  /// Where the result of the own part is computed, and is needed again.
  Place own_place(uint32_t q, const Part& part) {
    return in_place_ ? Place(out_) : result_place(q, part);
  }
  std::byte* own_copy(uint32_t q, const Part& part) const {
    return shares_ && in_place_ && !scattered_ ? result_slot(local_.rank(), q) + part.offset
                                               : nullptr;
  }

  /// All results that this member has for the others are there.
  void finish() {
    if (shares_) local_.consume();
  }
  Task copy_in(uint32_t q) {
    if (!writes_ || (!shares_ && in_place_)) co_return;
    for (int p = 0; p < cut_.parts(); ++p) {
      if (!cut_.takes(q, p)) continue;
      const int dealer = group_.index_of(cut_.dealer(p));
      if (dealer != local_.rank()) co_await local_.consumed(dealer, q + 1);
      const Part part = cut_.part(q, p);
      const std::byte* const chunk = shares_ ? result_slot(dealer, q) : result_memory(q);
      out_.copy_from(chunk + part.offset, part.range);
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

  WideGroup& group_;
  Group& local_;
  const Cut& cut_;
  Form form_;
  RangeReduce reduce_;
  bool shares_;
  bool writes_;
  bool in_place_;  ///< results come where they belong at once, and need not be decoded
  bool scattered_;
  bool is_sum_ = false;       ///< what this member gives is this host's sum already
  bool reads_input_ = false;  ///< and so is the input
  std::vector<Cursor> sources_;
  Cursor out_;
  size_t sums_bytes_ = 0;
  size_t results_bytes_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
};

}  // namespace sirtaki
