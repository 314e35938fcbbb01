#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "collectives/wide/cut.h"
#include "collectives/wide/exchange_plan.h"
#include "collectives/wide/host_stage.h"

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
        steps_(halving_steps(group.hosts())),
        phases_(phases_of(group, blocks)) {
    if (!blocks) return;
    const auto lanes = static_cast<size_t>(lanes_.count());
    const auto hosts = static_cast<size_t>(group.hosts());
    windows_ = ceil(hosts, this->chunk_bytes() / kSliceAlign / lanes);
    const size_t in_window = ceil(hosts, windows_);
    block_ = whole_lines(this->chunk_bytes() / lanes / in_window);
    lane_bytes_ = in_window * block_;
    pieces_ = Chunks(bytes, block_);
    set(static_cast<uint32_t>(lanes_.rows() * windows_) * pieces_.count(), lanes * lane_bytes_);
  }

  const std::vector<HalvingStep>& steps() const { return steps_; }
  uint32_t phases() const { return phases_; }
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

  int parts() const override { return lanes_.count() * (blocks_ ? group_.hosts() : 1); }
  int dealer(int part) const override {
    return LaneCut::dealer(blocks_ ? part / group_.hosts() : part);
  }
  Part part(uint32_t q, int part) const override {
    if (!blocks_) return LaneCut::part(q, part);
    const int lane = part / group_.hosts();
    const int host = part % group_.hosts();
    const auto place = static_cast<size_t>(host);
    const size_t window = q / pieces_.count();
    const int member = lanes_.member(lane, host, window / windows_);
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

  const Streams& in_;
  bool blocks_;
  std::vector<HalvingStep> steps_;
  uint32_t phases_;
  size_t block_ = 0;
  size_t windows_ = 1;  ///< a chunk has room for every so many-th host's block only
};

/// Between hosts: in each step a host passes on half of the blocks that it has sums of, and adds
/// what it gets to the other half, until it has the sum of its own; then back again with the
/// results. See HalvingStep.
class HalvingExchange {
 public:
  HalvingExchange(WideGroup& group, const Op& op, const Target& target, const HalvingCut& cut,
                  HostStage& stage)
      : group_(group),
        net_(group.net()),
        cut_(cut),
        stage_(stage),
        lane_(cut.lanes().own()),
        add_(op, Scale{}, 2),
        end_(op, scales_of(op).among_hosts, 2),
        scattered_(target.scattered),
        flights_(cut.depth()) {
    if (lane_ < 0) return;
    const size_t bytes = cut.depth() * cut.lane_bytes();
    sums_ = std::unique_ptr<std::byte[]>(new std::byte[bytes]);
    received_ = std::unique_ptr<std::byte[]>(new std::byte[bytes]);
  }

  uint32_t phases() const { return cut_.phases(); }

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

  const std::vector<Ticket>& awaited(uint32_t q, uint32_t phase) const {
    const Flight& flight = flights_[q % cut_.depth()];
    return phase == 0 ? flight.sent : flight.received;
  }

  void run(uint32_t q, uint32_t phase) {
    if (lane_ < 0) return;
    const std::vector<HalvingStep>& steps = cut_.steps();
    const auto halvings = static_cast<uint32_t>(steps.size());
    Flight& flight = flights_[q % cut_.depth()];
    if (phase == 0) {
      flight.sent.clear();
      for (int host = 0; host < group_.hosts(); ++host) stage_.sum(q, cut_.block(q, lane_, host));
    }
    flight.received.clear();
    if (phase > 0 && phase <= halvings) add(q, phase - 1);
    if (phase < halvings) {
      halve(q, phase);
    } else if (!scattered_) {
      double_back(q, steps[2 * halvings - 1 - phase]);
    }
    net_.start();
  }

 private:
  /// What waits for the network in one of the chunks under way.
  struct Flight {
    std::vector<Ticket> sent, received;
  };

  int host_at(int distance) const {
    return (group_.host() + distance + group_.hosts()) % group_.hosts();
  }
  int member(int distance) const { return cut_.lanes().member(lane_, host_at(distance)); }
  Part block(uint32_t q, int distance) const { return cut_.block(q, lane_, host_at(distance)); }
  /// Of the own buffers.
  std::byte* at(const std::unique_ptr<std::byte[]>& buffer, uint32_t q, const Part& part) const {
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
      send(q, step.kept, index == 0 ? stage_.sum_place(q, part) : sum_place(q, i, part), part);
    }
    for (int i = 0; i < step.moved(); ++i) {
      const Part part = block(q, i);
      receive(q, -step.kept, Place(at(received_, q, part), part.range.begin), part);
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
      send(q, -step.kept, stage_.result_place(q, part), part);
    }
    for (int i = step.kept; i < step.had; ++i) {
      const Part part = block(q, i);
      receive(q, step.kept, stage_.result_place(q, part), part);
    }
  }

  void send(uint32_t q, int distance, const Place& from, const Part& part) {
    Flight& flight = flights_[q % cut_.depth()];
    sirtaki::send(group_, member(distance), from, part.range, flight.sent);
  }
  void receive(uint32_t q, int distance, const Place& to, const Part& part) {
    Flight& flight = flights_[q % cut_.depth()];
    sirtaki::receive(group_, member(distance), to, part.range, flight.received);
  }

  WideGroup& group_;
  WideNet& net_;
  const HalvingCut& cut_;
  HostStage& stage_;
  int lane_;
  RangeReduce add_, end_;
  bool scattered_;
  std::vector<Flight> flights_;
  std::unique_ptr<std::byte[]> sums_, received_;
};

}  // namespace sirtaki
