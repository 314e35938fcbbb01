#pragma once

#include <utility>
#include <vector>

#include "transport/host_tree.h"

namespace sirtaki {

/// The host of each rank. Host 0 is rank 0's; the lowest rank of a host is its leader.
class HostMap {
 public:
  /// `host_of[r]` is the host of rank r; hosts are numbered from 0 without gaps. `fan_out`: see
  /// HostTree.
  explicit HostMap(std::vector<int> host_of, int fan_out = HostTree::kFanOut)
      : host_of_(std::move(host_of)), fan_out_(fan_out) {
    for (size_t rank = 0; rank < host_of_.size(); ++rank) {
      const auto host = static_cast<size_t>(host_of_[rank]);
      if (host >= ranks_.size()) ranks_.resize(host + 1);
      place_.push_back(static_cast<int>(ranks_[host].size()));
      ranks_[host].push_back(static_cast<int>(rank));
    }
  }
  /// A world on one host.
  static HostMap single(int size) { return HostMap(std::vector<int>(static_cast<size_t>(size))); }

  int size() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  /// The rank's position among its host's ranks: its index in the shared region.
  int place_of(int rank) const { return place_[static_cast<size_t>(rank)]; }
  const std::vector<int>& ranks_on(int host) const { return ranks_[static_cast<size_t>(host)]; }
  int leader_of(int host) const { return ranks_on(host).front(); }
  /// The tree of hosts whose leaders are connected for control messages.
  HostTree tree() const { return HostTree(hosts(), fan_out_); }

 private:
  std::vector<int> host_of_;
  int fan_out_;
  std::vector<int> place_;
  std::vector<std::vector<int>> ranks_;
};

}  // namespace sirtaki
