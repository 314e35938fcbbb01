#pragma once

#include <algorithm>

#include "collectives/op.h"
#include "collectives/plan.h"
#include "collectives/wide/exchange_plan.h"
#include "transport/wide_group.h"

namespace sirtaki {

/// What of a chunk a member works on.
struct Part {
  size_t stream;  ///< of the inputs
  Range range;    ///< in that stream, and in the output
  size_t offset;  ///< in the slot or buffer of the chunk
};

/// How the data of a reduction between hosts are cut into chunks, and these into parts, each of
/// which one member of a host deals with for all of them. Memory is that of some chunks, and a
/// chunk's limit does not depend on the number of ranks or bytes.
class Cut {
 public:
  /// Bytes that wait on a rank for the network or for others are no more than that.
  static constexpr size_t kStaging = 20 << 20;

  virtual ~Cut() = default;

  uint32_t count() const { return count_; }
  /// Of an exchange of a chunk between hosts.
  uint32_t phases() const { return phases_; }
  /// Chunks handed to the network before the first of them is waited for.
  uint32_t ahead() const { return ahead_; }
  /// Chunks in work at a time: one copied out and one summed on the host, those under way in each
  /// phase, and one copied in.
  uint32_t depth() const { return depth_; }
  size_t chunk_bytes() const { return chunk_; }

  virtual int parts() const = 0;
  /// The member of this host that deals with a part.
  virtual int dealer(int part) const = 0;
  virtual Part part(uint32_t q, int part) const = 0;
  /// Whether this member takes the result of a part from the slots of its dealer.
  virtual bool takes(uint32_t q, int part) const = 0;

 protected:
  /// `ahead` chunks are in each phase. Those that do not lie in slots take so many times their
  /// length.
  Cut(const WideGroup& group, uint32_t phases, uint32_t ahead, size_t times)
      : group_(group), phases_(phases), ahead_(ahead), depth_(phases * ahead + 3) {
    most_ = (is_shared(group) ? group.stream_bytes() / 2 : kStaging / times) / depth_;
  }

  /// Chunks lie in the slots of a host, of some host at least.
  static bool is_shared(const WideGroup& group) { return group.size() > group.hosts(); }

  size_t most() const { return most_; }  ///< for a chunk
  void set(uint32_t count, size_t chunk) {
    count_ = count;
    chunk_ = chunk;
  }

  static size_t whole_lines(size_t bytes) { return bytes / kSliceAlign * kSliceAlign; }
  static size_t ceil(size_t a, size_t b) { return (a + b - 1) / b; }

  const WideGroup& group_;

 private:
  const uint32_t phases_, ahead_, depth_;
  size_t most_;
  uint32_t count_ = 0;
  size_t chunk_ = 0;
};

/// Every member has a part of each chunk.
class MemberCut final : public Cut {
 public:
  /// `bytes`: of the stream, or of the longest if each member has one of its own (`blocks`).
  /// `encoded`: they are to be decoded.
  MemberCut(const WideGroup& group, const Streams& in, size_t bytes, size_t chunk_bytes,
            bool blocks, bool encoded = false)
      // Shared memory is scarce; else so much is under way that nobody stops when a peer does for a
      // moment.
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

  /// No part is longer.
  size_t part_bytes() const { return part_bytes_; }

  int parts() const override { return group_.size(); }
  int dealer(int part) const override { return group_.agent(group_.host(), part); }
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
  /// Of its own part a member has the result already, unless it is encoded.
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
  size_t windows_ = 1;  ///< a chunk has room for every so many-th member's block only
};

/// Each lane has a slice of a chunk, and each host a block of that. Lanes are members that work in
/// parallel, one a host each.
class LaneCut final : public Cut {
 public:
  LaneCut(const WideGroup& group, size_t bytes, size_t chunk_bytes)
      // Halving and doubling. The host's sums, the exchange's and what is received are in memory.
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
  /// No slice is longer.
  size_t lane_bytes() const { return lane_bytes_; }
  /// What is a host's of the lane's slice of a chunk.
  Part block(uint32_t q, int lane, int host) const {
    const Part slice = part(q, lane);
    const Range range = slice_of(slice.range, group_.hosts(), host);
    return {0, range, slice.offset + (range.begin - slice.range.begin)};
  }

  int parts() const override { return group_.lanes(); }
  int dealer(int part) const override { return member(part, group_.host()); }
  Part part(uint32_t q, int part) const override {
    const Range chunk = pieces_.range(q);
    const Range slice = slice_of(chunk.bytes(), group_.lanes(), part);
    return {0, {chunk.begin + slice.begin, chunk.begin + slice.end}, slice.begin};
  }
  bool takes(uint32_t, int) const override { return true; }

 private:
  /// Chunks, of which the network is busy with some: filling and emptying these phases is to take
  /// little time beside them.
  static constexpr size_t kMany = 64;
  static constexpr size_t kLeast = 32 << 10;

  const std::vector<HalvingStep> steps_;
  Chunks pieces_{0, 1};
  size_t lane_bytes_ = 0;
};

}  // namespace sirtaki
