#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/inter_host/cut.h"
#include "collectives/inter_host/host_stage.h"

namespace sirtaki {

/// The exchange between hosts that turns their sums of a chunk into the sum of all: in each step a
/// host passes on blocks that it has sums of, and adds what it receives to those that it keeps,
/// until it has only the sum of its own block; then the results travel back. See ExchangeStep.
///
/// A chunk goes through phases; `run` begins each once all of `awaited` has moved, and the chunk is
/// done when everything awaited after the last has moved.
class Exchange {
 public:
  Exchange(InterHostGroup& group, const Op& op, const Target& target, const Cut& cut,
           HostStage& stage)
      : group_(group),
        op_(op),
        target_(target),
        scale_(scales_of(op).among_hosts),
        cut_(cut),
        stage_(stage),
        flights_(cut.depth()) {
    const int first = group.index_of(group.rank());
    for (int i = first; i < cut.lanes(); i += group.local().size()) lanes_.push_back(i);
    const auto most = static_cast<size_t>(cut.steps().front().moved());
    room_ = lanes_.size() * most * cut.block_bytes();
    received_.reset(new std::byte[cut.depth() * room_]);
  }

  Task open(const Greeting& greeting) {
    std::vector<int> peers;
    for (const ExchangeStep& step : cut_.steps()) {
      for (int away = step.kept; away < step.had; away += step.kept) {
        for (int lane : lanes_) peers.insert(peers.end(), {peer(lane, away), peer(lane, -away)});
      }
    }
    co_await sirtaki::open(group_, peers, peers, greeting);
  }

  const std::vector<Ticket>& awaited(uint32_t q, uint32_t phase) const {
    const Flight& flight = flights_[q % flights_.size()];
    return phase == 0 ? flight.before : flight.within;
  }

  void run(uint32_t q, uint32_t phase) {
    const uint32_t steps = cut_.phases() / 2;
    if (phase == 0) flight(q).before.clear();
    flight(q).within.clear();
    if (phase > 0 && phase <= steps) add(q, phase - 1);
    phase < steps ? pass_on(q, phase) : pass_back(q, cut_.steps()[2 * steps - 1 - phase]);
    group_.net().start();
  }

 private:
  /// The transfers to await before a chunk's first phase, which may reuse the memory of the chunk
  /// `flights` before, and before each later phase.
  struct Flight {
    std::vector<Ticket> before, within;
  };

  Flight& flight(uint32_t q) { return flights_[q % flights_.size()]; }
  int host_at(int distance) const {
    return (group_.host() + distance + group_.hosts()) % group_.hosts();
  }
  int peer(int lane, int distance) const { return cut_.member(lane, host_at(distance)); }
  /// Whether results come to the host at a distance. With several steps, they all pass them on.
  bool gets_results(int distance) const {
    if (target_.scattered) return false;
    return target_.root < 0 || cut_.steps().size() > 1 ||
           host_at(distance) == group_.host_of(target_.root);
  }

  void pass_on(uint32_t q, uint32_t index) {
    const ExchangeStep& step = cut_.steps()[index];
    // Where the first step has added nothing, the sum of this host is still in its place.
    const int added = index == 0 ? 0 : cut_.steps().front().moved();
    for (int away = step.kept; away < step.had; away += step.kept) {
      const int end = away + step.blocks(away);
      const int split = std::clamp(added, away, end);
      for (int lane : lanes_) {
        walk(q, lane, away, split, [&](const Part& part) {
          send(q, peer(lane, away), stage_.result_place(q, part), part.range);
        });
        walk(q, lane, split, end, [&](const Part& part) {
          if (index == 0) stage_.sum(q, part);
          send(q, peer(lane, away), stage_.sum_place(q, part), part.range);
        });
      }
      group_.net().start();
    }
    const int kept = index == 0 ? step.kept : 0;
    for (int lane : lanes_) {
      walk(q, lane, 0, kept, [&](const Part& part) { stage_.sum(q, part); });
    }
    walk_added(q, step, [&](int lane, const Part& part, int senders, std::byte* to) {
      for (int k = 1; k <= senders; ++k, to += part.range.bytes()) {
        receive(q, peer(lane, -k * step.kept), Place(to, part.range.begin), part.range);
      }
    });
  }

  /// Adds what has been received in a step, in the order of hosts.
  void add(uint32_t q, uint32_t index) {
    const ExchangeStep& step = cut_.steps()[index];
    const bool ends = step.kept == 1;
    const Scale scale = ends ? scale_ : Scale{};
    walk_added(q, step, [&](int, const Part& part, int senders, std::byte* from) {
      // Senders are at multiples of `kept` before this host; so many have a smaller number.
      const int own = std::min(senders, group_.host() / step.kept);
      const auto source = [&](int s, size_t at) {
        const int k = (own + senders + 1 - s) % (senders + 1);
        return from + static_cast<size_t>(k - 1) * part.range.bytes() + (at - part.range.begin);
      };
      const Place sum = index == 0 ? stage_.sum_place(q, part) : stage_.result_place(q, part);
      const Place to = ends ? stage_.own_place(q, part) : stage_.result_place(q, part);
      std::byte* const copy = ends ? stage_.own_copy(q, part) : nullptr;
      RangeReduce(op_, scale, senders + 1).run(part.range, sum, own, to, source, copy);
    });
  }

  void pass_back(uint32_t q, const ExchangeStep& step) {
    for (int away = step.kept; away < step.had; away += step.kept) {
      const int blocks = step.blocks(away);
      for (int lane : lanes_) {
        walk(q, lane, 0, gets_results(-away) ? blocks : 0, [&](const Part& part) {
          send(q, peer(lane, -away), stage_.result_place(q, part), part.range);
        });
        walk(q, lane, away, away + (gets_results(0) ? blocks : 0), [&](const Part& part) {
          receive(q, peer(lane, away), stage_.result_place(q, part), part.range);
        });
      }
    }
  }

  /// Visits the parts of blocks at these distances.
  template <class Visit>
  void walk(uint32_t q, int lane, int begin, int end, Visit visit) const {
    cut_.walk(q, lane, host_at(begin), end - begin, visit);
  }
  /// Visits the parts that a step adds to, with the memory for what `senders` hosts send for each.
  template <class Visit>
  void walk_added(uint32_t q, const ExchangeStep& step, Visit visit) const {
    std::byte* memory = received_.get() + q % cut_.depth() * room_;
    const int senders = (step.had - 1) / step.kept;
    const int last = step.blocks(senders * step.kept);
    const auto walk_some = [&](int lane, int begin, int end, int count) {
      if (count == 0) return;
      walk(q, lane, begin, end, [&](const Part& part) {
        visit(lane, part, count, memory);
        memory += static_cast<size_t>(count) * part.range.bytes();
      });
    };
    for (int lane : lanes_) {
      walk_some(lane, 0, last, senders);
      walk_some(lane, last, step.kept, senders - 1);
    }
  }

  /// Notes the bytes at a place to be sent to a member, or memory there to receive from one.
  void send(uint32_t q, int member, const Place& from, Range range) {
    from.walk(range, [&](const std::byte* data, size_t bytes, size_t) {
      note(flight(q).before, group_.net().send(group_.world_rank(member), data, bytes));
    });
  }
  void receive(uint32_t q, int member, const Place& to, Range range) {
    to.walk(range, [&](std::byte* data, size_t bytes, size_t) {
      note(flight(q).within, group_.net().receive(group_.world_rank(member), data, bytes));
    });
  }
  /// The last ticket of a flow covers the earlier ones.
  static void note(std::vector<Ticket>& noted, const Ticket& ticket) {
    if (!noted.empty() && noted.back().flow == ticket.flow) noted.pop_back();
    noted.push_back(ticket);
  }

  InterHostGroup& group_;
  const Op& op_;
  const Target target_;
  const Scale scale_;  ///< of the last sum
  const Cut& cut_;
  HostStage& stage_;
  std::vector<int> lanes_;  ///< that this member works on
  size_t room_;             ///< for what one chunk receives
  std::unique_ptr<std::byte[]> received_;
  std::vector<Flight> flights_;
};

}  // namespace sirtaki
