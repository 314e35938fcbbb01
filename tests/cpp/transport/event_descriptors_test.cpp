#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "doctest/doctest.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {
namespace {

bool rings(const Region& region, int place) {
  pollfd polled{region.event_descriptors().descriptor(place), POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

/// A driver that waits for a silent socket and for a peer's counter, in a thread.
class Sleeper {
 public:
  explicit Sleeper(const std::shared_ptr<Region>& region) : doorbell_(region, 0, {0, 0}) {
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_);
    thread_ = std::thread([this] {
      doorbell_.drive_as_caller(true);
      try {
        doorbell_.wait([this] { return news.load(); }, [this] { return sleep(); });
      } catch (const PeerLost&) {
        lost = true;
      }
    });
  }
  ~Sleeper() {
    thread_.join();
    for (const int socket : sockets_) close(socket);
  }

  std::atomic<bool> news{false};
  std::atomic<int> sleeps{0};
  std::atomic<bool> lost{false};

 private:
  Sleep sleep() {
    ++sleeps;
    Sleep sleep;
    sleep.await_data(1);
    sleep.polled.push_back({sockets_[0], POLLIN, 0});
    return sleep;
  }

  Doorbell doorbell_;
  int sockets_[2] = {-1, -1};
  std::thread thread_;
};

/// Until it sleeps in poll.
void await_sleep(const Region& region) {
  while ((region.rank(0).caller.wants() & kPolls) == 0) std::this_thread::yield();
}

TEST_CASE("an event descriptor ends a poll, or the next one, and once silenced none") {
  const auto region = Region::anonymous(2);
  CHECK_FALSE(rings(*region, 1));
  region->event_descriptors().ring(1);
  region->event_descriptors().ring(1);
  CHECK(rings(*region, 1));
  CHECK_FALSE(rings(*region, 0));
  region->event_descriptors().silence(1);
  CHECK_FALSE(rings(*region, 1));
}

TEST_CASE("who sleeps in poll is woken by its event descriptor, for what it sleeps for alone") {
  const auto region = Region::anonymous(2);
  const Doorbell doorbell(region, 0, {});
  region->rank(1).caller.park(kPolls | kControl);
  doorbell.ring(1, kPair);
  CHECK_FALSE(rings(*region, 1));
  doorbell.ring(1, kControl);
  CHECK(rings(*region, 1));
}

TEST_CASE("a lost world, and the own engine's event descriptor, end a poll that is to begin") {
  const auto region = Region::anonymous(2);
  const Doorbell doorbell(region, 0, {});
  doorbell.ring_engine();
  CHECK(rings(*region, 0));
  doorbell.abort(1);
  CHECK(rings(*region, 1));
}

TEST_CASE("a driver that polls sleeps on while nothing happens") {
  const auto region = Region::anonymous(2);
  Sleeper sleeper(region);
  await_sleep(*region);
  const int before = sleeper.sleeps;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(sleeper.sleeps - before <= 20);  // far fewer than one a millisecond
  sleeper.news = true;
  Doorbell(region, 1, {}).ring(0, kData);
}

TEST_CASE("a driver that polls hears of a lost world") {
  const auto region = Region::anonymous(2);
  Sleeper sleeper(region);
  await_sleep(*region);
  Doorbell(region, 1, {}).abort(1);
  while (!sleeper.lost) std::this_thread::yield();
}

}  // namespace
}  // namespace sirtaki
