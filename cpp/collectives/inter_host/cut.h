#pragma once

#include <algorithm>

#include "collectives/inter_host/exchange_plan.h"
#include "collectives/op.h"
#include "collectives/plan.h"
#include "transport/inter_host_group.h"

namespace sirtaki {

/// The part of a chunk that a member works on.
struct Part {
  size_t stream;  ///< the index among the inputs
  Range range;    ///< in that stream, and in the output
  size_t offset;  ///< in the slot or buffer of the chunk
};

/// Cuts the data of a reduction between hosts into chunks, and these into parts; one member of a
/// host handles each part for the whole host. Memory holds a few chunks, and a chunk's limit does
/// not depend on the number of ranks or bytes.
class Cut {
 public:
  /// The most bytes that wait on a rank for the network or for other members.
  static constexpr size_t kStaging = 20 << 20;

  virtual ~Cut() = default;

  uint32_t count() const { return count_; }
  /// The phases of a chunk's exchange between hosts.
  uint32_t phases() const { return phases_; }
  /// The chunks passed to the network before it waits for the first of them.
  uint32_t ahead() const { return ahead_; }
  /// The chunks in progress at a time: one copied out and one summed on the host, `ahead` in each
  /// phase, and one copied in.
  uint32_t depth() const { return depth_; }
  size_t chunk_bytes() const { return chunk_; }

  virtual int parts() const = 0;
  /// The member of this host that owns a part.
  virtual int owner(int part) const = 0;
  virtual Part part(uint32_t q, int part) const = 0;
  /// Whether this member reads the result of a part from the slots of its owner.
  virtual bool takes(uint32_t q, int part) const = 0;

 protected:
  /// `ahead` chunks are in each phase. A chunk outside the slots takes `times` times its size.
  Cut(const InterHostGroup& group, uint32_t phases, uint32_t ahead, size_t times)
      : group_(group), phases_(phases), ahead_(ahead), depth_(phases * ahead + 3) {
    most_ = (is_shared(group) ? group.stream_bytes() / 2 : kStaging / times) / depth_;
  }

  /// Whether chunks lie in the slots of a host, at least of one.
  static bool is_shared(const InterHostGroup& group) { return group.size() > group.hosts(); }

  size_t most() const { return most_; }  ///< for one chunk
  void set(uint32_t count, size_t chunk) {
    count_ = count;
    chunk_ = chunk;
  }

  static size_t whole_lines(size_t bytes) { return bytes / kSliceAlign * kSliceAlign; }
  static size_t ceil(size_t a, size_t b) { return (a + b - 1) / b; }

  const InterHostGroup& group_;

 private:
  const uint32_t phases_, ahead_, depth_;
  size_t most_;
  uint32_t count_ = 0;
  size_t chunk_ = 0;
};

/// Every member has a part of each chunk.
class MemberCut final : public Cut {
 public:
  /// `bytes`: of the stream or, with `blocks`, of the longest of each member's own streams.
  /// `encoded`: the results must be decoded.
  MemberCut(const InterHostGroup& group, const Streams& in, size_t bytes, size_t chunk_bytes,
            bool blocks, bool encoded = false)
      // Shared memory is scarce; outside it, enough chunks are in progress that no rank stops when
      // a peer pauses.
      : Cut(group, 2, is_shared(group) ? 2 : 8, 2), in_(in), blocks_(blocks), encoded_(encoded) {
    const auto n = static_cast<size_t>(group.size());
    const size_t few = (blocks ? bytes : bytes / n) / 8;
    const size_t slice = std::min(std::clamp(few, kLeastSlice, kMostSlice), chunk_bytes);
    const size_t chunk = whole_lines(std::min(slice * n, most()));
    if (!blocks) {
      pieces_ = Chunks(bytes, chunk);
      part_bytes_ = chunk / n + 2 * kSliceAlign;
      set(pieces_.count(), chunk);
      return;
    }
    windows_ = ceil(n, chunk / kSliceAlign);
    block_ = whole_lines(chunk / ceil(n, windows_));
    part_bytes_ = block_;
    pieces_ = Chunks(bytes, block_);
    set(static_cast<uint32_t>(windows_) * pieces_.count(), chunk);
  }

  /// The length of the longest part.
  size_t part_bytes() const { return part_bytes_; }

  int parts() const override { return group_.size(); }
  int owner(int part) const override { return group_.owner(group_.host(), part); }
  Part part(uint32_t q, int part) const override {
    const auto m = static_cast<size_t>(part);
    if (blocks_) {
      if (m % windows_ != q / pieces_.count()) return {m, {}, 0};
      const Range range = pieces_.range(q % pieces_.count(), in_[m].bytes());
      return {m, range, m / windows_ * block_};
    }
    const Range chunk = pieces_.range(q);
    const Range slice = slice_of(chunk.bytes(), group_.size(), part);
    return {0, {chunk.begin + slice.begin, chunk.begin + slice.end}, slice.begin};
  }
  /// A member already has the result of its own part, unless it is encoded.
  bool takes(uint32_t, int part) const override {
    return !blocks_ && (encoded_ || part != group_.rank());
  }

 private:
  static constexpr size_t kLeastSlice = 32 << 10;
  static constexpr size_t kMostSlice = 128 << 10;

  const Streams& in_;
  bool blocks_;
  bool encoded_;
  Chunks pieces_{0, 1};  ///< of the stream, or of each block
  size_t part_bytes_ = 0;
  size_t block_ = 0;
  size_t windows_ = 1;  ///< a chunk has room only for the blocks of every windows_-th member
};

/// Each lane has a slice of a chunk, and each host a block of that. A lane consists of one member
/// of each host; lanes work in parallel.
class LaneCut final : public Cut {
 public:
  LaneCut(const InterHostGroup& group, size_t bytes, size_t chunk_bytes)
      // Halving, then doubling. Memory holds the host's sums, the exchange's, and received bytes.
      : Cut(group, 2 * static_cast<uint32_t>(halving_steps(group.hosts()).size()), 1, 3),
        steps_(halving_steps(group.hosts())) {
    const auto lanes = static_cast<size_t>(group.lanes());
    const size_t fine = std::min(std::max(bytes / lanes / kMany, kLeast), chunk_bytes);
    const size_t chunk = whole_lines(std::min(fine * lanes, most()));
    lane_bytes_ = ceil(chunk / kSliceAlign, lanes) * kSliceAlign;
    pieces_ = Chunks(bytes, chunk);
    set(pieces_.count(), chunk);
  }

  const std::vector<HalvingStep>& steps() const { return steps_; }
  /// This member's lane; -1: none.
  int own_lane() const {
    const int index = group_.index_of(group_.rank());
    return index < group_.lanes() ? index : -1;
  }
  int member(int lane, int host) const {
    return group_.members_on(host)[static_cast<size_t>(lane)];
  }
  /// The length of the longest slice.
  size_t lane_bytes() const { return lane_bytes_; }
  /// A host's block of the lane's slice of a chunk.
  Part block(uint32_t q, int lane, int host) const {
    const Part slice = part(q, lane);
    const Range range = slice_of(slice.range, group_.hosts(), host);
    return {0, range, slice.offset + (range.begin - slice.range.begin)};
  }

  int parts() const override { return group_.lanes(); }
  int owner(int part) const override { return member(part, group_.host()); }
  Part part(uint32_t q, int part) const override {
    const Range chunk = pieces_.range(q);
    const Range slice = slice_of(chunk.bytes(), group_.lanes(), part);
    return {0, {chunk.begin + slice.begin, chunk.begin + slice.end}, slice.begin};
  }
  bool takes(uint32_t, int) const override { return true; }

 private:
  /// The number of chunks to aim for: with this many, the time to fill and empty the phases hardly
  /// matters.
  static constexpr size_t kMany = 64;
  static constexpr size_t kLeast = 32 << 10;

  const std::vector<HalvingStep> steps_;
  Chunks pieces_{0, 1};
  size_t lane_bytes_ = 0;
};

}  // namespace sirtaki
