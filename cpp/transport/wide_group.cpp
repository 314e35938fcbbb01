#include "transport/wide_group.h"

#include <algorithm>

namespace sirtaki {

HostMap WideGroup::map_of(const std::vector<int>& world_ranks, const HostMap& hosts) {
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

std::vector<int> WideGroup::on_this_host() const {
  std::vector<int> result;
  for (int member : members_on(host())) result.push_back(world_rank(member));
  return result;
}

std::unique_ptr<Network> WideGroup::make(const MakeNetwork& make_network,
                                         const Endpoint& endpoint) {
  auto network = make_network(endpoint.doorbell, {.first_number = set_});
  for (int m = 0; m < local_.size(); ++m) {
    network->keep({local_.stream_slots(m), local_.stream_bytes()});
  }
  return network;
}

WideGroup::WideGroup(Endpoint& endpoint, const HostMap& hosts, std::vector<int> world_ranks,
                     int set, const MakeNetwork& make_network)
    : ranks_(std::move(world_ranks)),
      members_(map_of(ranks_, hosts)),
      rank_(static_cast<int>(std::ranges::find(ranks_, endpoint.rank) - ranks_.begin())),
      set_(set),
      rules_(endpoint.rules),
      local_(endpoint, hosts, on_this_host(), set),
      net_(endpoint.rank, endpoint.doorbell, make(make_network, endpoint), endpoint.silent_ns),
      lanes_(kMostLanes) {
  for (int h = 0; h < this->hosts(); ++h) {
    lanes_ = std::min(lanes_, static_cast<int>(members_on(h).size()));
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
