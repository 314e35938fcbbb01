#include "transport/network/links.h"

#include <sys/socket.h>

#include "transport/network/tcp_channel.h"

namespace sirtaki {

std::vector<std::unique_ptr<Channel>> channels_over(std::vector<Link> links) {
  std::vector<std::unique_ptr<Channel>> channels;
  for (Link& link : links) {
    channels.push_back(
        std::make_unique<TcpChannel>(link.rank, DataSocket(std::move(link.socket), link.keys)));
  }
  return channels;
}

Links::Links(int rank, HostMap hosts, std::shared_ptr<Region> region, std::vector<Link> local,
             std::vector<std::unique_ptr<Channel>> between, Connect connect,
             std::unique_ptr<PeerHeaps> heaps)
    : rank_(rank),
      map_(std::move(hosts)),
      region_(std::move(region)),
      local_(std::move(local)),
      connect_(std::move(connect)),
      heaps_(std::move(heaps)) {
  for (auto& channel : between) hosts_.emplace_back(std::move(channel));
}

void Links::begin_next() {
  ++generation_;
  for (HostLink& link : hosts_) link.begin(generation_);
}

void Links::close() {
  if (mark_.forked()) return;
  for (Link& link : local_) {
    shutdown(link.socket.get(), SHUT_RDWR);
    link.socket = Fd();
  }
  for (HostLink& link : hosts_) link.close();
}

}  // namespace sirtaki
