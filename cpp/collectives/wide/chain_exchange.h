#pragma once

#include <vector>

#include "collectives/wide/exchange.h"

namespace sirtaki {

/// Of a sum that one host wants: from the host behind that one on each adds its own to what comes
/// from the host before, and hands that on, so that every link carries it once.
///
/// A chunk waits for one that was so many chunks before, both to come and to go.
class ChainExchange : public Exchange {
 public:
  static constexpr uint32_t kPhases = 1;
  /// What is in memory for each byte of a chunk.
  static constexpr size_t kTimes = 16;

  ChainExchange(WideGroup& group, const Op& op, const Target& target, const LaneCut& cut,
                HostStage& stage)
      : Exchange(group, stage, kBuffers),
        cut_(cut),
        lane_(cut.own_lane()),
        add_(op, Scale{}, 2),
        end_(op, scales_of(op).among_hosts, 2) {
    if (lane_ < 0) return;
    const int root_host = group.host_of(target.root);
    if (group.host() != root_host) behind_ = neighbour(1);
    if (group.host() != (root_host + 1) % group.hosts()) before_ = neighbour(-1);
    buffers_ = Buffer(new std::byte[kBuffers * cut.lane_bytes()]);
  }

  Task open(const Greeting& greeting) {
    if (lane_ < 0) co_return;
    std::vector<int> to, from;
    if (sends()) to.push_back(behind_);
    if (receives()) from.push_back(before_);
    co_await sirtaki::open(group_, to, from, greeting);
    for (uint32_t q = 0; q < kAhead; ++q) receive_chunk(q);
  }

  void run(uint32_t q, uint32_t) {
    if (lane_ < 0) return;
    flight(q).before.clear();
    const Part part = cut_.part(q, lane_);
    stage_.sum(q, part);
    const Place own = stage_.sum_place(q, part);
    const Place passed(buffer(q), part.range.begin);
    const auto theirs = [&](int, size_t at) { return buffer(q) + (at - part.range.begin); };
    if (!receives()) {
      own.walk(part.range, [&](const std::byte* from, size_t bytes, size_t at) {
        std::memcpy(buffer(q) + (at - part.range.begin), from, bytes);
      });
    } else if (sends()) {
      add_.run(part.range, own, 1, passed, theirs);
    } else {
      const Place result = stage_.result_place(q, part);
      end_.run(part.range, own, 1, result, theirs);
    }
    if (sends()) {
      // Its buffer is received into again in that chunk's turn.
      send(flight(q + kAhead).before, behind_, passed, part.range);
      group_.net().start();
    }
    receive_chunk(q + kAhead);
  }

 private:
  static constexpr uint32_t kAhead = 8;  ///< chunks under way from one host to the next
  static constexpr uint32_t kBuffers = 2 * kAhead;

  bool sends() const { return behind_ >= 0; }
  bool receives() const { return before_ >= 0; }
  int neighbour(int step) const {
    return cut_.member(lane_, (group_.host() + step + group_.hosts()) % group_.hosts());
  }
  std::byte* buffer(uint32_t q) const { return buffers_.get() + q % kBuffers * cut_.lane_bytes(); }
  void receive_chunk(uint32_t q) {
    if (!receives() || q >= cut_.count()) return;
    const Range range = cut_.part(q, lane_).range;
    receive(flight(q).before, before_, Place(buffer(q), range.begin), range);
  }

  const LaneCut& cut_;
  const int lane_;
  RangeReduce add_, end_;
  int before_ = -1, behind_ = -1;
  Buffer buffers_;
};

}  // namespace sirtaki
