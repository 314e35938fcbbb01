#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "collectives/wide/cut.h"
#include "collectives/wide/host_stage.h"
#include "collectives/wide/lanes.h"

namespace sirtaki {

/// A chunk of a ring has one piece for each lane, of the segment whose turn it is on this host:
/// other hosts work on other segments meanwhile. Turns are as in `ring_steps` or `chain_steps`, of
/// some pieces each; where these do not suffice, there are several rounds.
class RingCut final : public Cut {
 public:
  static constexpr uint32_t kPhases = 1;

  /// `bytes` and `blocks` as those of MemberCut; `root`: only this member's host gets the result
  /// (-1: all).
  RingCut(const WideGroup& group, const Streams& in, size_t bytes, size_t chunk_bytes, bool blocks,
          int root)
      : Cut(group, kPhases, 1, group.size() > group.hosts(), 2 * kMostPieces),
        group_(group),
        in_(in),
        blocks_(blocks),
        lanes_(group),
        steps_(root < 0 ? ring_steps(group.hosts(), group.host(), blocks)
                        : chain_steps(group.hosts(), group.host(), group.host_of(root))),
        segments_(root < 0 ? group.hosts() : 1) {
    const auto lanes = static_cast<size_t>(lanes_.count());
    const size_t parts = blocks ? 1 : lanes * static_cast<size_t>(segments_);
    const size_t share = bytes / parts;
    pieces_ = static_cast<uint32_t>(std::clamp<size_t>(share / kLeast, 1, kMostPieces));
    const size_t room = std::min({whole_lines(most() / lanes), chunk_bytes, kMost});
    piece_ = whole_lines(std::min(share / pieces_ + kSliceAlign, room));
    turns_ = Chunks(bytes, parts * pieces_ * piece_);
    const size_t rounds = turns_.count() * (blocks ? lanes_.rows() : 1);
    set(static_cast<uint32_t>(rounds * steps_.size() * pieces_), lanes * piece_);
  }

  /// No piece is longer.
  size_t part_bytes() const { return piece_; }
  /// In a turn; so many are under way from one host to the next.
  uint32_t pieces() const { return pieces_; }
  const Lanes& lanes() const { return lanes_; }
  const RingStep& step(uint32_t q) const { return steps_[q / pieces_ % steps_.size()]; }

  int parts() const override { return lanes_.count(); }
  int dealer(int part) const override { return lanes_.member(part, group_.host()); }
  Part part(uint32_t q, int lane) const override {
    const auto round = static_cast<uint32_t>(q / pieces_ / steps_.size());
    const int segment = step(q).segment;
    const size_t offset = static_cast<size_t>(lane) * part_bytes();
    if (!blocks_) {
      const Range turn = turns_.range(round);
      const Range of_host = within(turn, slice_of(turn.bytes(), segments_, segment));
      const Range of_lane = within(of_host, slice_of(of_host.bytes(), lanes_.count(), lane));
      return {0, piece(of_lane, q), offset};
    }
    const int member = lanes_.member(lane, segment, round / turns_.count());
    if (member < 0) return {static_cast<size_t>(group_.rank()), {}, offset};
    const auto stream = static_cast<size_t>(member);
    const Range turn = turns_.range(round % turns_.count(), in_[stream].bytes());
    return {stream, piece(turn, q), offset};
  }
  bool gives(uint32_t q) const override { return step(q).adds; }
  bool takes(uint32_t q, int lane) const override {
    if (!step(q).ends) return false;
    if (!blocks_) return true;
    return part(q, lane).stream == static_cast<size_t>(group_.rank()) &&
           dealer(lane) != group_.rank();
  }

 private:
  static constexpr size_t kMostPieces = 8;
  static constexpr size_t kLeast = 16 << 10;
  static constexpr size_t kMost = 128 << 10;

  Range piece(const Range& range, uint32_t q) const {
    const auto k = static_cast<int>(q % pieces_);
    return within(range, slice_of(range.bytes(), static_cast<int>(pieces_), k));
  }

  const WideGroup& group_;
  const Streams& in_;
  bool blocks_;
  Lanes lanes_;
  std::vector<RingStep> steps_;
  int segments_;
  uint32_t pieces_ = 1;
  size_t piece_ = 0;
  Chunks turns_{0, 1};
};

/// Between hosts: each adds its sum of a segment to what comes from the host before, and hands that
/// on to the host behind. See RingStep.
///
/// A piece waits for one that was so many pieces before, both to come and to go, so no order of
/// waiting can block all hosts.
class RingExchange {
 public:
  static uint32_t phases() { return RingCut::kPhases; }

  RingExchange(WideGroup& group, const Op& op, const Target& target, const RingCut& cut,
               HostStage& stage)
      : group_(group),
        net_(group.sockets()),
        cut_(cut),
        stage_(stage),
        lane_(cut.lanes().own()),
        straight_(!group.shares() && target.out != nullptr),
        add_(op, Scale{}, 2),
        end_(op, scales_of(op).among_hosts, 2),
        flights_(2 * cut.pieces()) {
    if (lane_ < 0) return;
    before_ = neighbour(-1);
    behind_ = neighbour(1);
    buffers_ = std::unique_ptr<std::byte[]>(new std::byte[flights_.size() * cut.part_bytes()]);
  }

  Task open(const Greeting& greeting) {
    if (lane_ < 0) co_return;
    bool sends = false, receives = false;
    for (uint32_t q = 0; q < cut_.count(); q += cut_.pieces()) {
      sends |= cut_.step(q).sends;
      receives |= cut_.step(q).receives;
    }
    std::vector<int> peers;
    if (sends) peers.push_back(behind_);
    if (receives) peers.push_back(before_);
    co_await sirtaki::open(group_, peers);
    if (sends) net_.greet(group_.world_rank(behind_), greeting);
    if (receives) net_.expect(group_.world_rank(before_), greeting);
    for (uint32_t q = 0; q < cut_.pieces(); ++q) receive(q);
  }

  const std::vector<Mark>& awaited(uint32_t q, uint32_t phase) const {
    return phase == 0 ? flights_[q % flights_.size()] : kNothing;
  }

  void run(uint32_t q, uint32_t) {
    if (lane_ < 0) return;
    flights_[q % flights_.size()].clear();
    const RingStep& step = cut_.step(q);
    const Part part = cut_.part(q, lane_);
    if (step.adds) {
      add(q, step, part);
    } else if (!straight_) {
      stage_.end_place(q, part).walk(part.range, [&](std::byte* to, size_t bytes, size_t at) {
        std::memcpy(to, buffer(q) + (at - part.range.begin), bytes);
      });
    }
    if (step.sends) send(q, part);
    receive(q + cut_.pieces());
  }

 private:
  static inline const std::vector<Mark> kNothing;

  int neighbour(int step) const {
    return cut_.lanes().member(lane_, (group_.host() + step + group_.hosts()) % group_.hosts());
  }
  std::byte* buffer(uint32_t q) const {
    return buffers_.get() + q % flights_.size() * cut_.part_bytes();
  }
  /// Goes straight into the output.
  bool is_straight(const RingStep& step) const { return straight_ && !step.adds; }

  void receive(uint32_t q) {
    if (q >= cut_.count()) return;
    const RingStep& step = cut_.step(q);
    if (!step.receives) return;
    const Part part = cut_.part(q, lane_);
    const Place place =
        is_straight(step) ? stage_.end_place(q, part) : Place(buffer(q), part.range.begin);
    place.walk(part.range, [&](std::byte* to, size_t bytes, size_t) {
      await(q, net_.receive(group_.world_rank(before_), to, bytes));
    });
  }

  void add(uint32_t q, const RingStep& step, const Part& part) {
    stage_.sum(q, part);
    const Place own = stage_.sum_place(q, part);
    if (!step.receives) {
      own.walk(part.range, [&](const std::byte* from, size_t bytes, size_t at) {
        std::memcpy(buffer(q) + (at - part.range.begin), from, bytes);
      });
      return;
    }
    const auto theirs = [&](int, size_t at) { return buffer(q) + (at - part.range.begin); };
    if (step.ends) {
      const Place result = stage_.end_place(q, part);
      end_.run(part.range, own, 1, result, theirs, buffer(q));
    } else {
      const Place passed(buffer(q), part.range.begin);
      add_.run(part.range, own, 1, passed, theirs);
    }
  }

  void send(uint32_t q, const Part& part) {
    const Place place =
        is_straight(cut_.step(q)) ? stage_.end_place(q, part) : Place(buffer(q), part.range.begin);
    place.walk(part.range, [&](const std::byte* from, size_t bytes, size_t) {
      await(q + cut_.pieces(), net_.send(group_.world_rank(behind_), from, bytes));
    });
    net_.start();
  }

  void await(uint32_t q, const Mark& mark) { flights_[q % flights_.size()].push_back(mark); }

  WideGroup& group_;
  Sockets& net_;
  const RingCut& cut_;
  HostStage& stage_;
  int lane_;
  bool straight_;
  RangeReduce add_, end_;
  int before_ = -1, behind_ = -1;
  std::unique_ptr<std::byte[]> buffers_;
  /// Of a piece that is under way, what must have moved before its turn: it must be here, and the
  /// one whose buffer the next one takes must be gone. Half of them come, half of them go.
  std::vector<std::vector<Mark>> flights_;
};

}  // namespace sirtaki
