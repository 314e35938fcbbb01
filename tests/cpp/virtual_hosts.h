#pragma once

#include <sys/socket.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "ranks.h"
#include "switchboard.h"

// Ranks as threads, on several hosts that this process plays: one region a host, sockets between.
namespace sirtaki::testing {

/// One rank with its backend, driven by the test's thread.
struct HostedMember {
  HostedMember(const HostMap& hosts, std::shared_ptr<Region> region, int world_rank, size_t chunk,
               Connect connect, const ExchangeRules& rules)
      : rank(world_rank),
        size(hosts.size()),
        chunk_bytes(chunk),
        endpoint(std::move(region), world_rank, hosts.place_of(world_rank), SpinPolicy{0, 0},
                 rules) {
    endpoint.doorbell.drive_as_caller(true);
    connect.open = [this, open = connect.open](int peer, int number, const Connect::Ended& ended) {
      ++opened;
      return open(peer, number, ended);
    };
    backend = std::make_unique<NativeBackend>(endpoint, hosts, over_sockets(std::move(connect)));
  }

  void run(const Op& op, const Streams& in, const Streams& out) {
    run_to_end(*backend, endpoint.doorbell, op, in, out, chunk_bytes);
  }
  void add_set(int32_t set, const std::vector<int>& ranks) {
    finish(*backend->add_set(set, ranks), endpoint.doorbell);
  }
  void remove_set(int32_t set) { finish(*backend->remove_set(set), endpoint.doorbell); }

  int rank;
  int size;
  size_t chunk_bytes;
  Endpoint endpoint;
  std::unique_ptr<NativeBackend> backend;
  int opened = 0;  ///< connections so far
  /// Ends the world on all hosts, as the control connections do.
  std::function<void(int lost_rank)> tell_hosts;
};

/// Runs `body(member)` for each rank; `host_of[r]` is the host of rank r. `rules`: which exchange
/// is used when.
inline void run_on_hosts(const std::vector<int>& host_of, size_t chunk_bytes,
                         const std::function<void(HostedMember&)>& body,
                         const ExchangeRules& rules = {}) {
  const HostMap hosts(host_of);
  Switchboard switchboard;
  std::vector<std::shared_ptr<Region>> regions;
  for (int h = 0; h < hosts.hosts(); ++h) {
    regions.push_back(Region::anonymous(static_cast<int>(hosts.ranks_on(h).size())));
  }
  const auto region_of = [&](int r) { return regions[static_cast<size_t>(hosts.host_of(r))]; };
  const auto tell_hosts = [&](int lost_rank) {
    for (const auto& region : regions) Doorbell(region, 0, SpinPolicy{}).abort(lost_rank);
  };
  run_threads(
      hosts.size(),
      [&](int r) {
        HostedMember member(hosts, region_of(r), r, chunk_bytes, switchboard.of(r), rules);
        member.tell_hosts = tell_hosts;
        body(member);
      },
      [&](int r) {
        switchboard.close();
        tell_hosts(r);
      });
}

}  // namespace sirtaki::testing
