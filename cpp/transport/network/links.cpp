#include "transport/network/links.h"

#include <sys/socket.h>

namespace sirtaki {

Links::Links(int rank, HostMap hosts, std::shared_ptr<Region> region, std::vector<Link> local,
             std::vector<Link> between, Connect connect, double patience_seconds,
             double silent_seconds, std::unique_ptr<PeerHeaps> heaps)
    : rank_(rank),
      map_(std::move(hosts)),
      region_(std::move(region)),
      local_(std::move(local)),
      heaps_(std::move(heaps)) {
  for (Link& link : between) hosts_.emplace_back(std::move(link));
  if (connect.open) {
    data_ = std::make_shared<DataLinks>(rank, std::move(connect), patience_seconds, silent_seconds);
  }
}

Connect Links::connect() const {
  if (data_ == nullptr) return {};
  return {[data = data_](int rank, int lane, const Connect::Ended& ended) {
            return data->open(rank, lane, ended);
          },
          [data = data_](int rank) { return data->why_broken(rank); }};
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
