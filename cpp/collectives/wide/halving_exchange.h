#pragma once

#include <vector>

#include "collectives/wide/exchange.h"
#include "collectives/wide/exchange_plan.h"

namespace sirtaki {

/// Each lane has a slice of a chunk, and each host a block of that.
class HalvingCut final : public LaneCut {
 public:
  /// `bytes` and `blocks` as those of MemberCut.
  HalvingCut(const WideGroup& group, const Streams& in, size_t bytes, size_t chunk_bytes,
             bool blocks)
      : LaneCut(group, blocks ? bytes * static_cast<size_t>(group.hosts()) : bytes, chunk_bytes,
                phases_of(group, blocks), 3),
        in_(in),
        blocks_(blocks),
        steps_(halving_steps(group.hosts())) {
    if (!blocks) return;
    const auto lanes = static_cast<size_t>(group.lanes());
    const auto hosts = static_cast<size_t>(group.hosts());
    windows_ = ceil(hosts, this->chunk_bytes() / kSliceAlign / lanes);
    const size_t in_window = ceil(hosts, windows_);
    block_ = whole_lines(this->chunk_bytes() / lanes / in_window);
    lane_bytes_ = in_window * block_;
    pieces_ = Chunks(bytes, block_);
    set(static_cast<uint32_t>(rows(group) * windows_) * pieces_.count(), lanes * lane_bytes_);
  }

  const std::vector<HalvingStep>& steps() const { return steps_; }
  /// What is a host's of the lane's slice of a chunk.
  Part block(uint32_t q, int lane, int host) const {
    if (blocks_) return part(q, lane * group_.hosts() + host);
    const Part slice = LaneCut::part(q, lane);
    const Range range = slice_of(slice.range, group_.hosts(), host);
    return {0, range, slice.offset + (range.begin - slice.range.begin)};
  }
  /// Where the slice begins in a chunk.
  size_t lane_begin(uint32_t q, int lane) const {
    return blocks_ ? static_cast<size_t>(lane) * lane_bytes_ : LaneCut::part(q, lane).offset;
  }

  int parts() const override { return group_.lanes() * (blocks_ ? group_.hosts() : 1); }
  int dealer(int part) const override {
    return LaneCut::dealer(blocks_ ? part / group_.hosts() : part);
  }
  Part part(uint32_t q, int part) const override {
    if (!blocks_) return LaneCut::part(q, part);
    const int lane = part / group_.hosts();
    const int host = part % group_.hosts();
    const auto place = static_cast<size_t>(host);
    const size_t window = q / pieces_.count();
    const int member = member_in_row(lane, host, window / windows_);
    if (member < 0 || place % windows_ != window % windows_) {
      return {static_cast<size_t>(group_.rank()), {}, 0};
    }
    const auto stream = static_cast<size_t>(member);
    const size_t offset = static_cast<size_t>(lane) * lane_bytes_ + place / windows_ * block_;
    return {stream, pieces_.range(q % pieces_.count(), in_[stream].bytes()), offset};
  }
  bool takes(uint32_t q, int index) const override {
    if (!blocks_) return true;
    return part(q, index).stream == static_cast<size_t>(group_.rank()) &&
           dealer(index) != group_.rank();
  }

 private:
  /// Halving, one to add up the last, and doubling where all want everything.
  static uint32_t phases_of(const WideGroup& group, bool blocks) {
    const auto steps = static_cast<uint32_t>(halving_steps(group.hosts()).size());
    return blocks ? steps + 1 : 2 * steps;
  }

  /// Members of one host have a lane, and share it row by row: the longest lane has so many.
  static size_t rows(const WideGroup& group) {
    size_t most = 0;
    for (int h = 0; h < group.hosts(); ++h) most = std::max(most, group.members_on(h).size());
    return ceil(most, static_cast<size_t>(group.lanes()));
  }
  /// -1: the host has no such member.
  int member_in_row(int lane, int host, size_t row) const {
    const std::vector<int>& members = group_.members_on(host);
    const size_t index = row * static_cast<size_t>(group_.lanes()) + static_cast<size_t>(lane);
    return index < members.size() ? members[index] : -1;
  }

  const Streams& in_;
  bool blocks_;
  std::vector<HalvingStep> steps_;
  size_t block_ = 0;
  size_t windows_ = 1;  ///< a chunk has room for every so many-th host's block only
};

/// In each step a host passes on half of the blocks that it has sums of, and adds
/// what it gets to the other half, until it has the sum of its own; then back again with the
/// results. See HalvingStep.
class HalvingExchange : public Exchange {
 public:
  HalvingExchange(WideGroup& group, const Op& op, const Target& target, const HalvingCut& cut,
                  HostStage& stage)
      : Exchange(group, stage, cut.depth()),
        cut_(cut),
        lane_(cut.own_lane()),
        add_(op, Scale{}, 2),
        end_(op, scales_of(op).among_hosts, 2),
        scattered_(target.scattered) {
    if (lane_ < 0) return;
    const size_t bytes = cut.depth() * cut.lane_bytes();
    sums_ = Buffer(new std::byte[bytes]);
    received_ = Buffer(new std::byte[bytes]);
  }

  Task open(const Greeting& greeting) {
    if (lane_ < 0) co_return;
    std::vector<int> to, from;
    for (const HalvingStep& step : cut_.steps()) {
      to.push_back(member(step.kept));
      from.push_back(member(-step.kept));
    }
    if (!scattered_) {  // then doubling goes the other way
      to.insert(to.end(), from.begin(), from.end());
      from = to;
    }
    co_await sirtaki::open(group_, to, from, greeting);
  }

  void run(uint32_t q, uint32_t phase) {
    if (lane_ < 0) return;
    const std::vector<HalvingStep>& steps = cut_.steps();
    const auto halvings = static_cast<uint32_t>(steps.size());
    if (phase == 0) {
      flight(q).before.clear();
      for (int host = 0; host < group_.hosts(); ++host) stage_.sum(q, cut_.block(q, lane_, host));
    }
    flight(q).within.clear();
    if (phase > 0 && phase <= halvings) add(q, phase - 1);
    if (phase < halvings) {
      halve(q, phase);
    } else if (!scattered_) {
      double_back(q, steps[2 * halvings - 1 - phase]);
    }
    group_.net().start();
  }

 private:
  int host_at(int distance) const {
    return (group_.host() + distance + group_.hosts()) % group_.hosts();
  }
  int member(int distance) const { return cut_.member(lane_, host_at(distance)); }
  Part block(uint32_t q, int distance) const { return cut_.block(q, lane_, host_at(distance)); }
  /// Of the own buffers.
  std::byte* at(const Buffer& buffer, uint32_t q, const Part& part) const {
    return buffer.get() + q % cut_.depth() * cut_.lane_bytes() +
           (part.offset - cut_.lane_begin(q, lane_));
  }

  /// Where the sum of a block is after the first step; those that had nothing to be added to them
  /// then are still where the host's sum is.
  Place sum_place(uint32_t q, int distance, const Part& part) const {
    if (distance >= cut_.steps().front().moved()) return stage_.sum_place(q, part);
    return Place(at(sums_, q, part), part.range.begin);
  }

  void halve(uint32_t q, uint32_t index) {
    const HalvingStep& step = cut_.steps()[index];
    for (int i = step.kept; i < step.had; ++i) {
      const Part part = block(q, i);
      const Place sum = index == 0 ? stage_.sum_place(q, part) : sum_place(q, i, part);
      send(flight(q).before, member(step.kept), sum, part.range);
    }
    for (int i = 0; i < step.moved(); ++i) {
      const Part part = block(q, i);
      const Place to(at(received_, q, part), part.range.begin);
      receive(flight(q).within, member(-step.kept), to, part.range);
    }
  }

  void add(uint32_t q, uint32_t index) {
    const bool ends = index + 1 == cut_.steps().size();
    for (int i = 0; i < cut_.steps()[index].moved(); ++i) {
      const Part part = block(q, i);
      const Place own = index == 0 ? stage_.sum_place(q, part) : sum_place(q, i, part);
      const auto theirs = [&](int, size_t position) {
        return at(received_, q, part) + (position - part.range.begin);
      };
      const Place to = ends ? stage_.end_place(q, part) : sum_place(q, i, part);
      (ends ? end_ : add_).run(part.range, own, 1, to, theirs);
    }
  }

  void double_back(uint32_t q, const HalvingStep& step) {
    for (int i = 0; i < step.moved(); ++i) {
      const Part part = block(q, i);
      send(flight(q).before, member(-step.kept), stage_.result_place(q, part), part.range);
    }
    for (int i = step.kept; i < step.had; ++i) {
      const Part part = block(q, i);
      receive(flight(q).within, member(step.kept), stage_.result_place(q, part), part.range);
    }
  }

  const HalvingCut& cut_;
  const int lane_;
  RangeReduce add_, end_;
  const bool scattered_;
  Buffer sums_, received_;
};

}  // namespace sirtaki
