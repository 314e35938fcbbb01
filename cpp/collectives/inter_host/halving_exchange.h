#pragma once

#include <vector>

#include "collectives/inter_host/exchange.h"

namespace sirtaki {

/// In each step a host passes on half of the blocks that it has sums of, and adds what it receives
/// to the other half, until it has only the sum of its own block; then the results travel back. See
/// HalvingStep.
class HalvingExchange : public Exchange {
 public:
  HalvingExchange(InterHostGroup& group, const Op& op, const Target&, const LaneCut& cut,
                  HostStage& stage)
      : Exchange(group, stage, cut.depth()),
        cut_(cut),
        lane_(cut.own_lane()),
        add_(op, Scale{}, 2),
        end_(op, scales_of(op).among_hosts, 2) {
    if (lane_ < 0) return;
    const size_t bytes = cut.depth() * cut.lane_bytes();
    sums_ = Buffer(new std::byte[bytes]);
    received_ = Buffer(new std::byte[bytes]);
  }

  Task open(const Greeting& greeting) {
    if (lane_ < 0) co_return;
    std::vector<int> peers;  // doubling reverses the direction
    for (const HalvingStep& step : cut_.steps()) {
      peers.insert(peers.end(), {member(step.kept), member(-step.kept)});
    }
    co_await sirtaki::open(group_, peers, peers, greeting);
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
    } else {
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
  /// A position in this member's buffers.
  std::byte* at(const Buffer& buffer, uint32_t q, const Part& part) const {
    return buffer.get() + q % cut_.depth() * cut_.lane_bytes() +
           (part.offset - cut_.part(q, lane_).offset);
  }

  /// The place of a block's sum after the first step; a block to which that step added nothing
  /// stays in the place of the host's sum.
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
      const Place to = ends ? stage_.result_place(q, part) : sum_place(q, i, part);
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

  const LaneCut& cut_;
  const int lane_;
  RangeReduce add_, end_;
  Buffer sums_, received_;
};

}  // namespace sirtaki
