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
  /// Unix sockets between the host's leader and each other rank of the host. They close when the
  /// peer's process ends.
  std::span<const Link> local;
  /// TCP sockets between leaders of hosts, along the tree of hosts; the parent's comes first.
  std::span<HostLink> hosts;
  PeerHeaps* heaps = nullptr;  ///< null: no rank of the host has one
  /// Why the connections to a rank broke; empty: the reason is unknown.
  std::function<std::string(int rank)> why_broken{};
  std::shared_ptr<const void> owner{};  ///< keeps them alive
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

/// A rank's connections to the others of a world. They outlive the engines that use them, one after
/// the other: each engine is a generation of its own, and so are the ranks' messages between two
/// engines (see `Renewal`).
class Links : public std::enable_shared_from_this<Links> {
 public:
  /// `local`, `hosts`, `heaps`: as in LinkSet. `connect`: opens connections for data, of which each
  /// engine has its own; empty if the world is one host.
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

  /// The links for the engine of this generation.
  static LinkSet lend(const std::shared_ptr<Links>& links) {
    return {links->local(), links->hosts(), links->heaps_.get(), links->connect_.why_broken, links};
  }
  /// The network for data.
  MakeNetwork network() const { return connect_.open ? over_sockets(connect_) : nullptr; }

  /// Starts the next generation, while no engine uses the links.
  void begin_next() {
    ++generation_;
    for (HostLink& link : hosts_) link.begin(generation_);
  }

  /// Hangs up on all other ranks, which then cannot continue either. In a forked child it does
  /// nothing: the connections belong to the parent.
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
