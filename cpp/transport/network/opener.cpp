#include "transport/network/opener.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace sirtaki {

Opener::Opener(Connect connect, const Doorbell& doorbell, std::vector<int> ranks, int first_number,
               int count)
    : connect_(std::move(connect)),
      doorbell_(doorbell),
      ranks_(std::move(ranks)),
      first_number_(first_number),
      count_(count),
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
  for (const int rank : ranks_) {
    opened_.push_back(open(rank, ended));
    if (opened_.back()->broken()) break;
  }
  done_.store(true, std::memory_order_release);
  doorbell_.ring_own(kControl);
}

std::unique_ptr<TcpChannel> Opener::open(int rank, const Connect::Ended& ended) const {
  try {
    std::vector<DataSocket> sockets;
    for (int number = 0; number < count_; ++number) {
      sockets.push_back(connect_.open(rank, first_number_ + number, ended));
    }
    return std::make_unique<TcpChannel>(rank, std::move(sockets));
  } catch (const std::exception& error) {
    return std::make_unique<TcpChannel>(rank, error.what());
  }
}

}  // namespace sirtaki
