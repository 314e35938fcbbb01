#include "transport/network/tcp_network.h"

#include <poll.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace sirtaki {

MakeNetwork over_sockets(Connect connect) {
  return [connect = std::move(connect)](const Doorbell& doorbell, const NetworkUse& use) {
    return std::make_unique<TcpNetwork>(connect, doorbell, use);
  };
}

void TcpNetwork::open(std::vector<int> ranks) {
  openers_.push_back(std::make_unique<Opener>(connect_, doorbell_, std::move(ranks),
                                              use_.first_number, use_.stripes));
}

std::vector<std::unique_ptr<Channel>> TcpNetwork::opened() {
  std::vector<std::unique_ptr<Channel>> result;
  const auto is_done = [](const auto& opener) { return opener->done(); };
  const auto done = std::stable_partition(openers_.begin(), openers_.end(), std::not_fn(is_done));
  for (auto opener = done; opener != openers_.end(); ++opener) {
    for (std::unique_ptr<TcpChannel>& channel : (*opener)->opened()) {
      if (use_.news != nullptr && !channel->broken()) watch(*channel);
      result.push_back(std::move(channel));
    }
  }
  openers_.erase(done, openers_.end());
  return result;
}

std::string TcpNetwork::why_broken(int rank) const {
  return connect_.why_broken ? connect_.why_broken(rank) : "";
}

void TcpNetwork::watch(TcpChannel& channel) {
  if (epoll_.get() < 0) {
    epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
    if (epoll_.get() < 0) throw Error(ErrorCode::kInternal, "cannot create an epoll descriptor");
    sentry_ = std::make_unique<Sentry>(epoll_.get(), doorbell_, *use_.news);
  }
  channel.watch(epoll_.get());
}

std::span<Channel* const> TcpNetwork::ready() {
  if (epoll_.get() < 0) return {};
  std::array<epoll_event, std::tuple_size_v<decltype(ready_)>> events;
  const int got = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  const auto count = static_cast<size_t>(std::max(0, got));
  for (size_t i = 0; i < count; ++i) ready_[i] = static_cast<Channel*>(events[i].data.ptr);
  return {ready_.data(), count};
}

void TcpNetwork::prepare(Sleep& sleep) const {
  if (epoll_.get() >= 0) sleep.polled.push_back({epoll_.get(), POLLIN, 0});
}

void TcpNetwork::guard() {
  if (sentry_ != nullptr) sentry_->arm();
}

}  // namespace sirtaki
