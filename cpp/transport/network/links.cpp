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
             double patience_seconds, double silent_seconds, std::unique_ptr<PeerHeaps> heaps)
    : rank_(rank),
      map_(std::move(hosts)),
      region_(std::move(region)),
      local_(std::move(local)),
      heaps_(std::move(heaps)) {
  for (auto& channel : between) hosts_.emplace_back(std::move(channel));
  if (connect.open) {
    data_ = std::make_shared<DataLinks>(rank, std::move(connect), patience_seconds, silent_seconds);
  }
}

MakeNetwork Links::network() const {
  if (data_ == nullptr) return {};
  return over_sockets({[data = data_](int rank, int number, const Connect::Ended& ended) {
                         return data->open(rank, number, ended);
                       },
                       [data = data_](int rank) { return data->why_broken(rank); }});
}

void Links::begin_next() {
  ++generation_;
  for (HostLink& link : hosts_) link.begin(generation_);
  if (data_ != nullptr) data_->begin(generation_);
}

void Links::close() {
  if (mark_.forked()) return;
  for (Link& link : local_) {
    shutdown(link.socket.get(), SHUT_RDWR);
    link.socket = Fd();
  }
  for (HostLink& link : hosts_) link.close();
  if (data_ != nullptr) data_->close();
}

}  // namespace sirtaki
