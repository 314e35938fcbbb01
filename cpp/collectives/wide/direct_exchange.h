#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/wide/host_stage.h"

namespace sirtaki {

/// Between hosts: makes their sums of a chunk the sum of all. Each goes to the member whose part it
/// is, which adds them, in the hosts' order, and sends the result to one member of each host.
///
/// A chunk goes through phases; `run` begins each once `awaited` has moved, and the chunk is done
/// when what is awaited after the last has. Another way between hosts differs in nothing but such a
/// class and how it cuts. What it sends and receives goes through one function each, in the form
/// that the operation's numbers travel in.
class DirectExchange {
 public:
  static uint32_t phases() { return MemberCut::kPhases; }

  DirectExchange(WideGroup& group, const Op& op, const Target& target, const MemberCut& cut,
                 HostStage& stage)
      : group_(group),
        net_(group.net()),
        target_(target),
        cut_(cut),
        stage_(stage),
        reduce_(op, scales_of(op).among_hosts, group.hosts()),
        flights_(cut.depth()) {
    const auto others = static_cast<size_t>(group.hosts() - 1);
    wards_ = group.wards();
    wards_.push_back(group.rank());
    received_ = std::unique_ptr<std::byte[]>(new std::byte[cut.depth() * others * part_bytes()]);
  }

  Task open(const Greeting& greeting) {
    std::vector<int> peers(group_.wards());
    group_.for_other_hosts([&](int host) { peers.push_back(group_.agent(host, group_.rank())); });
    co_await sirtaki::open(group_, peers, peers, greeting);
  }

  const std::vector<Ticket>& awaited(uint32_t q, uint32_t phase) const {
    const Flight& flight = flights_[q % cut_.depth()];
    if (phase == 0) return flight.sent;
    return phase == 1 ? flight.sums : flight.results;
  }
  void run(uint32_t q, uint32_t phase) { phase == 0 ? send_sums(q) : send_results(q); }

 private:
  /// What waits for the network in one of the chunks under way.
  struct Flight {
    std::vector<Ticket> sent, sums, results;
  };

  Flight& flight(uint32_t q) { return flights_[q % cut_.depth()]; }
  size_t part_bytes() const { return cut_.part_bytes(); }
  /// What the other host's members sum up to, of the own part.
  std::byte* received(uint32_t q, int host) const {
    const auto others = static_cast<size_t>(group_.hosts() - 1);
    const auto index = static_cast<size_t>(host < group_.host() ? host : host - 1);
    return received_.get() + (q % cut_.depth() * others + index) * part_bytes();
  }
  bool gets_results(int host) const {
    if (target_.scattered) return false;
    return target_.root < 0 || host == group_.host_of(target_.root);
  }

  void send_sums(uint32_t q) {
    Flight& flight = this->flight(q) = {};
    for (int member : wards_) {
      const Part part = cut_.part(q, member);
      stage_.sum(q, part);
      if (member == group_.rank()) continue;
      send(group_, member, stage_.sum_place(q, part), part.range, flight.sent);
      net_.start();
    }
    const size_t own = cut_.part(q, group_.rank()).range.bytes();
    group_.for_other_hosts([&](int host) {
      const int agent = group_.world_rank(group_.agent(host, group_.rank()));
      flight.sums.push_back(net_.receive(agent, received(q, host), own));
    });
  }

  void send_results(uint32_t q) {
    Flight& flight = this->flight(q);
    const Part part = cut_.part(q, group_.rank());
    add_up(q, part);
    group_.for_other_hosts([&](int host) {
      if (!gets_results(host)) return;
      const int agent = group_.agent(host, group_.rank());
      send(group_, agent, stage_.result_place(q, part), part.range, flight.sent);
    });
    net_.start();
    if (!gets_results(group_.host())) return;
    for (int member : group_.wards()) {
      const Part ward = cut_.part(q, member);
      receive(group_, member, stage_.result_place(q, ward), ward.range, flight.results);
    }
  }

  void add_up(uint32_t q, const Part& part) {
    const Place sum = stage_.sum_place(q, part);
    const Place result = stage_.own_place(q, part);
    const auto source = [&](int host, size_t at) {
      return received(q, host) + (at - part.range.begin);
    };
    reduce_.run(part.range, sum, group_.host(), result, source, stage_.own_copy(q, part));
  }

  WideGroup& group_;
  WideNet& net_;
  Target target_;
  const MemberCut& cut_;
  HostStage& stage_;
  RangeReduce reduce_;
  std::vector<Flight> flights_;
  std::vector<int> wards_;  ///< and the member itself
  std::unique_ptr<std::byte[]> received_;
};

}  // namespace sirtaki
