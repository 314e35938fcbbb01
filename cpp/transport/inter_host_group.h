#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "transport/group.h"
#include "transport/inter_host_net.h"

namespace sirtaki {

/// The members of a process set that spans several hosts, seen from one of them.
///
/// Hosts are numbered here among those that have members, members as in the set. Each host has one
/// member that moves the data of a member of another host, its owner there: the one with the same
/// index on its host or, if there are fewer, that index modulo their number. So all members share
/// the work, and the data for a host cross its link once.
class InterHostGroup {
 public:
  InterHostGroup(Endpoint& endpoint, const HostMap& hosts, std::vector<int> world_ranks, int set,
                 const MakeNetwork& make_network)
      : ranks_(std::move(world_ranks)),
        members_(map_of(ranks_, hosts)),
        rank_(static_cast<int>(std::ranges::find(ranks_, endpoint.rank) - ranks_.begin())),
        rules_(endpoint.rules),
        local_(endpoint, hosts, on_this_host(), set),
        net_(endpoint.rank, endpoint.doorbell,
             make_network(endpoint.doorbell, {.first_number = set}), endpoint.silent_ns),
        lanes_(kMostLanes) {
    for (int h = 0; h < this->hosts(); ++h) {
      lanes_ = std::min(lanes_, static_cast<int>(members_on(h).size()));
    }
    for (int m = 0; m < size(); ++m) {
      if (m != rank_ && owner(host(), m) == rank_) owned_.push_back(m);
    }
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int world_rank(int member) const { return ranks_[static_cast<size_t>(member)]; }

  /// The members on this host; `members_on(host())` are their numbers in the set.
  Group& local() { return local_; }
  bool shares() const { return local_.size() > 1; }
  /// The size of one member's streaming slots, on every host.
  size_t stream_bytes() const { return local_.stream_bytes(); }

  int hosts() const { return members_.hosts(); }
  int host() const { return host_of(rank_); }
  int host_of(int member) const { return members_.host_of(member); }
  const std::vector<int>& members_on(int host) const { return members_.ranks_on(host); }
  /// A member's number among those of its host.
  int index_of(int member) const { return members_.place_of(member); }

  /// The owner of `member` on `host`; a member owns itself.
  int owner(int host, int member) const {
    const std::vector<int>& candidates = members_on(host);
    return candidates[static_cast<size_t>(index_of(member)) % candidates.size()];
  }
  /// The members of other hosts that this one owns.
  const std::vector<int>& owned() const { return owned_; }
  /// The number of members that every host has, which can work in parallel, one a host. It is
  /// limited so that pieces for all of them fit into the slots.
  int lanes() const { return lanes_; }

  /// For this set alone: several sets may have operations in progress.
  InterHostNet& net() { return net_; }
  /// When to use each exchange.
  const ExchangeRules& rules() const { return rules_; }

 private:
  static constexpr int kMostLanes = 64;

  static HostMap map_of(const std::vector<int>& world_ranks, const HostMap& hosts) {
    std::vector<int> numbers(static_cast<size_t>(hosts.hosts()), -1);
    for (int rank : world_ranks) numbers[static_cast<size_t>(hosts.host_of(rank))] = 0;
    int next = 0;
    for (int& number : numbers) {
      if (number == 0) number = next++;
    }
    std::vector<int> host_of;
    for (int rank : world_ranks) {
      host_of.push_back(numbers[static_cast<size_t>(hosts.host_of(rank))]);
    }
    return HostMap(std::move(host_of));
  }
  std::vector<int> on_this_host() const {
    std::vector<int> result;
    for (int member : members_on(host())) result.push_back(world_rank(member));
    return result;
  }

  std::vector<int> ranks_;
  const HostMap members_;  ///< as ranks of a separate world
  const int rank_;
  const ExchangeRules rules_;
  Group local_;
  InterHostNet net_;
  std::vector<int> owned_;
  int lanes_;
};

}  // namespace sirtaki
