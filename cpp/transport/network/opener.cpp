#include "transport/network/opener.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace sirtaki {

Opener::Opener(Connect connect, const Doorbell& doorbell, std::vector<int> ranks, int first_lane,
               int lanes)
    : connect_(std::move(connect)),
      doorbell_(doorbell),
      ranks_(std::move(ranks)),
      first_lane_(first_lane),
      lanes_(lanes),
      given_up_(std::make_shared<std::atomic<bool>>(false)) {
  std::sort(ranks_.begin(), ranks_.end());
  thread_ = std::thread([this] { open_all(); });
}

Opener::~Opener() {
  given_up_->store(true);
  if (mark_.forked()) {
    new std::thread(std::move(thread_));  // it is the parent's
  } else {
    thread_.join();
  }
}

void Opener::open_all() {
  // The function may be kept for longer than the call takes.
  const auto ended = [given_up = given_up_, bell = doorbell_] {
    return given_up->load() || bell.aborted();
  };
  try {
    for (const int rank : ranks_) {
      failed_rank_ = rank;
      std::vector<DataSocket> sockets;
      for (int lane = 0; lane < lanes_; ++lane) {
        sockets.push_back(connect_.open(rank, first_lane_ + lane, ended));
      }
      opened_.push_back(std::move(sockets));
    }
  } catch (const std::exception& error) {
    failure_ = error.what();
    if (failure_.empty()) failure_ = "no reason is known";
  }
  done_.store(true, std::memory_order_release);
  doorbell_.ring_own(kControl);
}

}  // namespace sirtaki
