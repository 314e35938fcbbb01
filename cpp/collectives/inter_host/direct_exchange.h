#pragma once

#include <vector>

#include "collectives/inter_host/exchange.h"

namespace sirtaki {

/// Each sum goes to the member that owns the part. It adds the sums, in the hosts' order, and sends
/// the result to one member of each host.
class DirectExchange : public Exchange {
 public:
  DirectExchange(InterHostGroup& group, const Op& op, const Target& target, const MemberCut& cut,
                 HostStage& stage)
      : Exchange(group, stage, cut.depth()),
        target_(target),
        cut_(cut),
        reduce_(op, scales_of(op).among_hosts, group.hosts()),
        owned_(group.owned()),
        others_(static_cast<size_t>(group.hosts() - 1)),
        received_(new std::byte[cut.depth() * others_ * cut.part_bytes()]) {
    owned_.push_back(group.rank());
  }

  Task open(const Greeting& greeting) {
    std::vector<int> peers(group_.owned());
    group_.for_other_hosts([&](int host) { peers.push_back(group_.owner(host, group_.rank())); });
    co_await sirtaki::open(group_, peers, peers, greeting);
  }

  void run(uint32_t q, uint32_t phase) { phase == 0 ? send_sums(q) : send_results(q); }

 private:
  /// The sum of another host's members for this member's part.
  std::byte* received(uint32_t q, int host) const {
    const auto index = static_cast<size_t>(host < group_.host() ? host : host - 1);
    return received_.get() + (q % cut_.depth() * others_ + index) * cut_.part_bytes();
  }
  bool gets_results(int host) const {
    if (target_.scattered) return false;
    return target_.root < 0 || host == group_.host_of(target_.root);
  }

  void send_sums(uint32_t q) {
    Flight& flight = this->flight(q) = {};
    for (int member : owned_) {
      const Part part = cut_.part(q, member);
      stage_.sum(q, part);
      if (member == group_.rank()) continue;
      send(flight.before, member, stage_.sum_place(q, part), part.range);
      group_.net().start();
    }
    const Range own = cut_.part(q, group_.rank()).range;
    group_.for_other_hosts([&](int host) {
      const Place to(received(q, host), own.begin);
      receive(flight.within, group_.owner(host, group_.rank()), to, own);
    });
  }

  void send_results(uint32_t q) {
    Flight& flight = this->flight(q);
    flight.within.clear();
    const Part part = cut_.part(q, group_.rank());
    add_up(q, part);
    group_.for_other_hosts([&](int host) {
      if (!gets_results(host)) return;
      const int owner = group_.owner(host, group_.rank());
      send(flight.before, owner, stage_.result_place(q, part), part.range);
    });
    group_.net().start();
    if (!gets_results(group_.host())) return;
    for (int member : group_.owned()) {
      const Part theirs = cut_.part(q, member);
      receive(flight.within, member, stage_.result_place(q, theirs), theirs.range);
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

  const Target target_;
  const MemberCut& cut_;
  RangeReduce reduce_;
  std::vector<int> owned_;  ///< including the member itself
  const size_t others_;     ///< the number of other hosts
  Buffer received_;
};

}  // namespace sirtaki
