#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "transport/memory/doorbell.h"
#include "transport/network/connect.h"
#include "transport/network/tcp_channel.h"

namespace sirtaki {
namespace {

/// Opens connections in its own thread, so that the driver meanwhile goes on and notices a lost
/// world. Destroying it abandons those that are not open.
class Opener {
 public:
  /// Connects to each of `ranks` in ascending order, so that no ranks wait in a circle. Rings the
  /// driver when it is done.
  Opener(const Connect& connect, const Doorbell& doorbell, std::vector<int> ranks,
         const NetworkUse& use)
      : connect_(connect), doorbell_(doorbell), ranks_(std::move(ranks)), use_(use) {
    std::sort(ranks_.begin(), ranks_.end());
    thread_ = start_thread([this] { open_all(); });
  }
  ~Opener() {
    given_up_->store(true);
    thread_.join();
  }
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// Call only once done. Opening stops at the first broken one, which is then the last.
  std::vector<std::unique_ptr<TcpChannel>>& opened() { return opened_; }

 private:
  void open_all() {
    // The callee may keep the function longer than the call lasts.
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

  std::unique_ptr<TcpChannel> open(int rank, const Connect::Ended& ended) const {
    try {
      return std::make_unique<TcpChannel>(rank, connect_.open(rank, use_.first_number, ended));
    } catch (const std::exception& error) {
      return std::make_unique<TcpChannel>(rank, error.what());
    }
  }

  const Connect connect_;
  const Doorbell doorbell_;
  std::vector<int> ranks_;
  const NetworkUse use_;
  std::vector<std::unique_ptr<TcpChannel>> opened_;
  const std::shared_ptr<std::atomic<bool>> given_up_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> done_{false};
  std::thread thread_;
};

/// Waits for a sleeping driver, which a bell wakes but no socket: rings when a descriptor becomes
/// readable.
class Sentry {
 public:
  /// `readable` is set before it rings: a driver that goes to sleep meanwhile checks that last.
  Sentry(int fd, const Doorbell& doorbell, std::atomic<bool>& readable)
      : fd_(fd),
        doorbell_(doorbell),
        readable_(readable),
        stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (stop_.get() < 0) throw Error(ErrorCode::kInternal, "cannot create an eventfd");
    thread_ = start_thread([this] { watch(); });
  }
  ~Sentry() {
    stopped_.store(true);
    machine::ring(stop_.get());
    arm();
    thread_.join();
  }
  Sentry(const Sentry&) = delete;
  Sentry& operator=(const Sentry&) = delete;

  /// Makes the next event ring once.
  void arm() {
    if (armed_.exchange(1) == 0) armed_.notify_one();
  }

 private:
  void watch() {
    pollfd polled[2] = {{fd_, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    for (;;) {
      armed_.wait(0);
      const int ready = machine::poll(polled, 2, -1);
      if (stopped_.load()) return;
      if (ready <= 0) continue;
      armed_.store(0);
      readable_.store(true);
      doorbell_.ring_own(kPair);
    }
  }

  const int fd_;
  const Doorbell doorbell_;
  std::atomic<bool>& readable_;
  Fd stop_;
  std::atomic<uint32_t> armed_{0};
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

/// Channels over sockets.
class TcpNetwork final : public Network {
 public:
  TcpNetwork(Connect connect, const Doorbell& doorbell, const NetworkUse& use)
      : connect_(std::move(connect)), doorbell_(doorbell), use_(use) {}

  void open(std::vector<int> ranks) override {
    openers_.push_back(std::make_unique<Opener>(connect_, doorbell_, std::move(ranks), use_));
  }

  std::vector<std::unique_ptr<Channel>> opened() override {
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

  void give_up() override { openers_.clear(); }
  std::string why_broken(int rank) const override {
    return connect_.why_broken ? connect_.why_broken(rank) : "";
  }
  int64_t now() const override { return now_ns(); }

  std::span<Channel* const> ready() override {
    if (epoll_.get() < 0) return {};
    std::array<epoll_event, kReady> events;
    const int got = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    const auto count = static_cast<size_t>(std::max(0, got));
    for (size_t i = 0; i < count; ++i) ready_[i] = static_cast<Channel*>(events[i].data.ptr);
    return {ready_.data(), count};
  }
  void prepare(Sleep& sleep) const override {
    if (epoll_.get() >= 0) sleep.polled.push_back({epoll_.get(), POLLIN, 0});
  }
  void guard() override {
    if (sentry_ != nullptr) sentry_->arm();
  }

 private:
  static constexpr size_t kReady = 16;  ///< the most channels that it reports at a time

  void watch(TcpChannel& channel) {
    if (epoll_.get() < 0) {
      epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
      if (epoll_.get() < 0) throw Error(ErrorCode::kInternal, "cannot create an epoll descriptor");
      sentry_ = std::make_unique<Sentry>(epoll_.get(), doorbell_, *use_.news);
    }
    channel.watch(epoll_.get());
  }

  const Connect connect_;
  const Doorbell& doorbell_;
  const NetworkUse use_;
  std::vector<std::unique_ptr<Opener>> openers_;
  Fd epoll_;  ///< of the channels' sockets; none before the first
  std::unique_ptr<Sentry> sentry_;
  std::array<Channel*, kReady> ready_{};
};

}  // namespace

MakeNetwork over_sockets(Connect connect) {
  return [connect = std::move(connect)](const Doorbell& doorbell, const NetworkUse& use) {
    return std::make_unique<TcpNetwork>(connect, doorbell, use);
  };
}

}  // namespace sirtaki
