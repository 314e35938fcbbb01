#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/fork_mark.h"
#include "transport/hosts.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {

/// Opens connections in a thread of its own, so that a driver goes on meanwhile and hears of a lost
/// world. Destroying it gives up what is not open.
class Opener {
 public:
  /// To each of `ranks`, which are taken in ascending order so that nobody waits in a circle, so
  /// many lanes. The driver is rung when it is done.
  Opener(Connect connect, const Doorbell& doorbell, std::vector<int> ranks, int first_lane,
         int lanes);
  ~Opener();
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

  bool done() const { return done_.load(std::memory_order_acquire); }

  /// Once done: why it failed, and to whom; empty: it did not.
  const std::string& failure() const { return failure_; }
  int failed_rank() const { return failed_rank_; }
  /// Once done: the sockets of each rank.
  std::vector<std::vector<DataSocket>>& opened() { return opened_; }
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  void open_all();

  const ForkMark mark_;
  const Connect connect_;
  const Doorbell doorbell_;
  std::vector<int> ranks_;
  const int first_lane_;
  const int lanes_;
  std::vector<std::vector<DataSocket>> opened_;
  std::string failure_;
  int failed_rank_ = -1;
  std::shared_ptr<std::atomic<bool>> given_up_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace sirtaki
