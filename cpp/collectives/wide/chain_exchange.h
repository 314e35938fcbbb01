#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "collectives/wide/cut.h"
#include "collectives/wide/host_stage.h"

namespace sirtaki {

/// Between hosts, of a sum that one of them wants: from the host behind the root's on each adds its
/// own to what comes from the host before, and hands that on, so that every link carries it once.
///
/// A chunk waits for one that was so many chunks before, both to come and to go.
class ChainExchange {
 public:
  static constexpr uint32_t kPhases = 1;
  /// What is in memory for each byte of a chunk.
  static constexpr size_t kTimes = 16;
  static uint32_t phases() { return kPhases; }

  ChainExchange(WideGroup& group, const Op& op, const Target& target, const LaneCut& cut,
                HostStage& stage)
      : group_(group),
        net_(group.net()),
        cut_(cut),
        stage_(stage),
        lane_(cut.lanes().own()),
        add_(op, Scale{}, 2),
        end_(op, scales_of(op).among_hosts, 2),
        flights_(2 * kAhead) {
    if (lane_ < 0) return;
    const int root_host = group.host_of(target.root);
    if (group.host() != root_host) behind_ = neighbour(1);
    if (group.host() != (root_host + 1) % group.hosts()) before_ = neighbour(-1);
    buffers_ = std::unique_ptr<std::byte[]>(new std::byte[flights_.size() * cut.lane_bytes()]);
  }

  Task open(const Greeting& greeting) {
    if (lane_ < 0) co_return;
    std::vector<int> to, from;
    if (sends()) to.push_back(behind_);
    if (receives()) from.push_back(before_);
    co_await sirtaki::open(group_, to, from, greeting);
    for (uint32_t q = 0; q < kAhead; ++q) receive(q);
  }

  const std::vector<Ticket>& awaited(uint32_t q, uint32_t phase) const {
    return phase == 0 ? flights_[q % flights_.size()] : kNothing;
  }

  void run(uint32_t q, uint32_t) {
    if (lane_ < 0) return;
    flights_[q % flights_.size()].clear();
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
      note(q + kAhead, net_.send(group_.world_rank(behind_), buffer(q), part.range.bytes()));
      net_.start();
    }
    receive(q + kAhead);
  }

 private:
  static constexpr uint32_t kAhead = 8;  ///< chunks under way from one host to the next
  static inline const std::vector<Ticket> kNothing;

  bool sends() const { return behind_ >= 0; }
  bool receives() const { return before_ >= 0; }
  int neighbour(int step) const {
    return cut_.lanes().member(lane_, (group_.host() + step + group_.hosts()) % group_.hosts());
  }
  std::byte* buffer(uint32_t q) const {
    return buffers_.get() + q % flights_.size() * cut_.lane_bytes();
  }
  void receive(uint32_t q) {
    if (!receives() || q >= cut_.count()) return;
    const size_t bytes = cut_.part(q, lane_).range.bytes();
    note(q, net_.receive(group_.world_rank(before_), buffer(q), bytes));
  }
  void note(uint32_t q, const Ticket& mark) { flights_[q % flights_.size()].push_back(mark); }

  WideGroup& group_;
  WideNet& net_;
  const LaneCut& cut_;
  HostStage& stage_;
  int lane_;
  RangeReduce add_, end_;
  int before_ = -1, behind_ = -1;
  std::unique_ptr<std::byte[]> buffers_;
  /// What must have moved before a chunk's turn: it must be here, and the one whose buffer the next
  /// one takes must be gone.
  std::vector<std::vector<Ticket>> flights_;
};

}  // namespace sirtaki
