#pragma once

#include <algorithm>
#include <vector>

#include "collectives/inter_host/exchange_plan.h"
#include "collectives/op.h"
#include "collectives/plan.h"
#include "transport/inter_host_group.h"

namespace sirtaki {

/// A range of a chunk.
struct Part {
  size_t stream;  ///< the index among the inputs
  Range range;    ///< in that stream, and in the output
  size_t offset;  ///< in the slot or buffer of the chunk
};

/// Cuts the data of a reduction between hosts into chunks, a chunk into slices for the lanes, and a
/// slice into blocks for the hosts. One member of each host works on a lane; lanes work in
/// parallel. Memory holds a few chunks, and a chunk's limit does not depend on the number of ranks
/// or bytes.
class Cut {
 public:
  /// The most bytes that wait on a rank for the network or for other members.
  static constexpr size_t kStaging = 20 << 20;

  /// `bytes`: of the stream or, with `blocks`, of the longest of each member's own streams: then a
  /// block is a piece of the stream of the member that has this number on its host.
  Cut(const InterHostGroup& group, const Streams& in, size_t bytes, size_t chunk_bytes, int radix,
      bool blocks)
      : group_(group), in_(in), blocks_(blocks), steps_(exchange_steps(group.hosts(), radix)) {
    const auto n = static_cast<size_t>(group.size());
    const auto hosts = static_cast<size_t>(group.hosts());
    for (int h = 0; h < group.hosts(); ++h) lanes_ = std::max(lanes_, group.members_on(h).size());
    const bool once = steps_.size() == 1;
    const bool shared = n > hosts;
    // Shared memory is scarce; outside it, enough chunks are in progress that no rank stops when a
    // peer pauses.
    if (once) ahead_ = shared ? 2 : 8;
    const size_t most = (shared ? group.stream_bytes() : kStaging) / 2 / depth();
    const size_t sharers = once ? n : lanes_;
    const size_t few = (blocks ? bytes : bytes / sharers) / (once ? 8 : kMany);
    const size_t slice = std::min(std::max(few, kLeast), once ? kMost : chunk_bytes);
    chunk_ = whole_lines(std::min(std::min(slice, chunk_bytes) * sharers, most));
    if (!blocks) {
      block_ = ceil(ceil(chunk_ / kSliceAlign, lanes_), hosts) * kSliceAlign;
      pieces_ = Chunks(bytes, chunk_);
      return;
    }
    windows_ = ceil(n, chunk_ / kSliceAlign);
    block_ = whole_lines(chunk_ / ceil(n, windows_));
    pieces_ = Chunks(bytes, block_);
  }

  uint32_t count() const { return static_cast<uint32_t>(windows_) * pieces_.count(); }
  const std::vector<ExchangeStep>& steps() const { return steps_; }
  /// The phases of a chunk's exchange between hosts: its steps, and the way back.
  uint32_t phases() const { return 2 * static_cast<uint32_t>(steps_.size()); }
  /// The chunks passed to the network before it waits for the first of them.
  uint32_t ahead() const { return ahead_; }
  /// The chunks in progress at a time: one copied out and one summed on the host, `ahead` in each
  /// phase, and one copied in.
  uint32_t depth() const { return phases() * ahead_ + 3; }
  size_t chunk_bytes() const { return chunk_; }
  /// The length of the longest block.
  size_t block_bytes() const { return block_; }

  int lanes() const { return static_cast<int>(lanes_); }
  /// The member of a host that works on a lane.
  int member(int lane, int host) const {
    const std::vector<int>& members = group_.members_on(host);
    return members[static_cast<size_t>(lane) % members.size()];
  }

  /// Visits the parts that make up the blocks of `count` hosts, from `first` on in the circle.
  template <class Visit>
  void walk(uint32_t q, int lane, int first, int count, Visit visit) const {
    const int hosts = group_.hosts();
    for (int begin = first % hosts; count > 0;) {
      const int some = blocks_ ? 1 : std::min(count, hosts - begin);
      const Part part = blocks_ ? block(q, lane, begin) : span(q, lane, begin, begin + some);
      if (part.range.bytes() > 0) visit(part);
      count -= some;
      begin = (begin + some) % hosts;
    }
  }

 private:
  static constexpr size_t kLeast = 32 << 10;
  static constexpr size_t kMost = 128 << 10;
  /// The number of chunks to aim for in several steps: with this many, the time to fill and empty
  /// the phases hardly matters.
  static constexpr size_t kMany = 64;

  static size_t whole_lines(size_t bytes) { return bytes / kSliceAlign * kSliceAlign; }
  static size_t ceil(size_t a, size_t b) { return (a + b - 1) / b; }

  Part span(uint32_t q, int lane, int first, int last) const {
    const Range chunk = pieces_.range(q);
    const Range slice = slice_of(chunk, lanes(), lane);
    const Range range = {slice_of(slice, group_.hosts(), first).begin,
                         slice_of(slice, group_.hosts(), last - 1).end};
    return {0, range, range.begin - chunk.begin};
  }
  Part block(uint32_t q, int lane, int host) const {
    const auto m = static_cast<size_t>(member(lane, host));
    if (group_.index_of(static_cast<int>(m)) != lane) return {};
    if (m % windows_ != q / pieces_.count()) return {};
    return {m, pieces_.range(q % pieces_.count(), in_[m].bytes()), m / windows_ * block_};
  }

  const InterHostGroup& group_;
  const Streams& in_;
  const bool blocks_;
  const std::vector<ExchangeStep> steps_;
  size_t lanes_ = 0;
  uint32_t ahead_ = 1;
  size_t chunk_ = 0;
  Chunks pieces_{0, 1};  ///< of the stream, or of each block
  size_t block_ = 0;
  size_t windows_ = 1;  ///< a chunk has room only for the blocks of every windows_-th member
};

}  // namespace sirtaki
