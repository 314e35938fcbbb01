#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/fork_mark.h"
#include "transport/memory/doorbell.h"
#include "transport/network/connect.h"
#include "transport/network/tcp_channel.h"

namespace sirtaki {

/// Opens connections in a thread of its own, so that a driver goes on meanwhile and hears of a lost
/// world. Destroying it gives up what is not open.
class Opener {
 public:
  /// To each of `ranks`, which are taken in ascending order so that nobody waits in a circle,
  /// `count` connections. The driver is rung when it is done.
  Opener(Connect connect, const Doorbell& doorbell, std::vector<int> ranks, int first_number,
         int count);
  ~Opener();
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

  bool done() const { return done_.load(std::memory_order_acquire); }

  /// Once done. The first that cannot be opened is broken, and the last.
  std::vector<std::unique_ptr<TcpChannel>>& opened() { return opened_; }

 private:
  void open_all();
  std::unique_ptr<TcpChannel> open(int rank, const Connect::Ended& ended) const;

  const ForkMark mark_;
  const Connect connect_;
  const Doorbell doorbell_;
  std::vector<int> ranks_;
  const int first_number_;
  const int count_;
  std::vector<std::unique_ptr<TcpChannel>> opened_;
  std::shared_ptr<std::atomic<bool>> given_up_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace sirtaki
