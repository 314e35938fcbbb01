#pragma once

#include <sys/epoll.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "transport/network/opener.h"
#include "transport/network/sentry.h"
#include "transport/network/tcp_channel.h"

namespace sirtaki {

/// Channels over sockets.
class TcpNetwork final : public Network {
 public:
  TcpNetwork(Connect connect, const Doorbell& doorbell, const NetworkUse& use)
      : connect_(std::move(connect)), doorbell_(doorbell), use_(use) {}

  void open(std::vector<int> ranks) override;
  std::vector<std::unique_ptr<Channel>> opened() override;
  void give_up() override { openers_.clear(); }
  std::string why_broken(int rank) const override;
  int64_t now() const override { return now_ns(); }

  std::span<Channel* const> ready() override;
  void prepare(Sleep& sleep) const override;
  void guard() override;

 private:
  void watch(TcpChannel& channel);

  const Connect connect_;
  const Doorbell& doorbell_;
  const NetworkUse use_;
  std::vector<std::unique_ptr<Opener>> openers_;
  Fd epoll_;  ///< of the channels' sockets; none before the first
  std::unique_ptr<Sentry> sentry_;
  std::array<Channel*, 16> ready_{};
};

}  // namespace sirtaki
