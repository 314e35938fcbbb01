#include "transport/wide_group.h"

#include <algorithm>

namespace sirtaki {

std::vector<int> WideGroup::on_this_host(const Endpoint& endpoint, const HostMap& hosts,
                                         const std::vector<int>& world_ranks) {
  const int here = hosts.host_of(endpoint.rank);
  std::vector<int> result;
  for (int rank : world_ranks) {
    if (hosts.host_of(rank) == here) result.push_back(rank);
  }
  return result;
}

std::unique_ptr<Network> WideGroup::make(const MakeNetwork& make_network,
                                         const Endpoint& endpoint) {
  const int lanes = endpoint.sockets_per_peer;
  auto network = make_network(endpoint.doorbell, {.first_number = set_ * lanes, .stripes = lanes});
  for (int m = 0; m < local_.size(); ++m) {
    network->keep({local_.stream_slots(m), local_.stream_bytes()});
  }
  return network;
}

WideGroup::WideGroup(Endpoint& endpoint, const HostMap& hosts, std::vector<int> world_ranks,
                     int set, const MakeNetwork& make_network)
    : ranks_(std::move(world_ranks)),
      set_(set),
      rules_(endpoint.rules),
      local_(endpoint, hosts, on_this_host(endpoint, hosts, ranks_), set),
      net_(endpoint.rank, endpoint.doorbell, make(make_network, endpoint), endpoint.silent_ns) {
  rank_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), endpoint.rank) - ranks_.begin());
  std::vector<std::vector<int>> by_host(static_cast<size_t>(hosts.hosts()));
  for (int m = 0; m < size(); ++m) {
    by_host[static_cast<size_t>(hosts.host_of(world_rank(m)))].push_back(m);
  }
  std::erase_if(by_host, [](const auto& members) { return members.empty(); });
  members_ = std::move(by_host);
  host_of_.resize(ranks_.size());
  index_of_.resize(ranks_.size());
  lanes_ = kMostLanes;
  for (size_t h = 0; h < members_.size(); ++h) {
    lanes_ = std::min(lanes_, static_cast<int>(members_[h].size()));
    for (size_t i = 0; i < members_[h].size(); ++i) {
      const auto member = static_cast<size_t>(members_[h][i]);
      host_of_[member] = static_cast<int>(h);
      index_of_[member] = static_cast<int>(i);
    }
  }
  for (int m = 0; m < size(); ++m) {
    if (m != rank_ && agent(host(), m) == rank_) wards_.push_back(m);
  }
}

int WideGroup::agent(int host, int member) const {
  const std::vector<int>& candidates = members_on(host);
  return candidates[static_cast<size_t>(index_of(member)) % candidates.size()];
}

}  // namespace sirtaki
