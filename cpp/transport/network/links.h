#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_mark.h"
#include "transport/heaps/peer_heaps.h"
#include "transport/hosts.h"
#include "transport/memory/region.h"
#include "transport/network/connect.h"
#include "transport/network/host_link.h"
#include "transport/network/tcp_channel.h"
#include "transport/network/watcher.h"

namespace sirtaki {

/// The connections that an engine borrows.
struct LinkSet {
  /// Unix sockets, between the host's leader and each other rank of the host. They close when the
  /// peer's process ends.
  std::span<const Link> local;
  /// TCP sockets between leaders of hosts, as the tree of hosts has it; the one up comes first.
  std::span<HostLink> hosts;
  PeerHeaps* heaps = nullptr;  ///< null: no rank of the host has one
  /// Why the connections to a rank broke; empty: nobody knows.
  std::function<std::string(int rank)> why_broken{};
  std::shared_ptr<const void> owner{};  ///< keeps them
};

/// Channels for messages between leaders.
inline std::vector<std::unique_ptr<Channel>> channels_over(std::vector<Link> links) {
  std::vector<std::unique_ptr<Channel>> channels;
  for (Link& link : links) {
    channels.push_back(
        std::make_unique<TcpChannel>(link.rank, DataSocket(std::move(link.socket), link.keys)));
  }
  return channels;
}

/// What connects a rank to the others of a world. It outlives the engines that use it, one after
/// the other: each is a generation of its own, and so is what the ranks say to each other between
/// two of them (see `Renewal`).
class Links {
 public:
  /// `local`, `hosts`, `heaps`: as in LinkSet. `connect`: opens connections for data, which each
  /// engine has of its own; empty where the world is one host.
  Links(int rank, HostMap hosts, std::shared_ptr<Region> region, std::vector<Link> local,
        std::vector<std::unique_ptr<Channel>> between, Connect connect,
        std::unique_ptr<PeerHeaps> heaps = nullptr)
      : rank_(rank),
        map_(std::move(hosts)),
        region_(std::move(region)),
        local_(std::move(local)),
        connect_(std::move(connect)),
        heaps_(std::move(heaps)) {
    for (auto& channel : between) hosts_.emplace_back(std::move(channel));
  }

  int rank() const { return rank_; }
  const HostMap& map() const { return map_; }
  const std::shared_ptr<Region>& region() const { return region_; }
  uint32_t generation() const { return generation_; }
  std::span<const Link> local() const { return local_; }
  std::span<HostLink> hosts() { return hosts_; }

  /// For the engine of this generation.
  static LinkSet lend(const std::shared_ptr<Links>& links) {
    return {links->local(), links->hosts(), links->heaps_.get(), links->connect_.why_broken, links};
  }
  /// For data.
  MakeNetwork network() const { return connect_.open ? over_sockets(connect_) : nullptr; }

  /// Goes on to the next generation, while no engine uses the links.
  void begin_next() {
    ++generation_;
    for (HostLink& link : hosts_) link.begin(generation_);
  }

  /// Hangs up on all other ranks, which then cannot go on with their ends either. In a forked child
  /// nothing happens: the connections are its parent's.
  void close() {
    if (mark_.forked()) return;
    for (Link& link : local_) {
      shutdown(link.socket.get(), SHUT_RDWR);
      link.socket = Fd();
    }
    for (HostLink& link : hosts_) link.close();
  }

 private:
  const int rank_;
  const HostMap map_;
  const std::shared_ptr<Region> region_;
  const ForkMark mark_;
  std::vector<Link> local_;
  std::vector<HostLink> hosts_;
  const Connect connect_;
  const std::unique_ptr<PeerHeaps> heaps_;
  uint32_t generation_ = kFirstGeneration;
};

}  // namespace sirtaki
