#include "transport/memory/doorbell.h"

#include <thread>

#include "doctest/doctest.h"

// What holds of every wait when the world ends.
namespace sirtaki {
namespace {

struct Waiting {
  std::shared_ptr<Region> region = Region::anonymous(1);
  Doorbell doorbell{region, 0, {0, 0}};

  void wait(bool ready) {
    Sleep sleep;
    sleep.messages = kControl;
    doorbell.wait([&] { return ready; }, [&] { return sleep; });
  }
};

TEST_CASE("a wait that is over before it begins looks for no abort") {
  Waiting waiting;
  waiting.region->set_loss(0, Loss{0});
  CHECK_NOTHROW(waiting.wait(true));
  CHECK_THROWS_AS(waiting.wait(false), PeerLost);
}

TEST_CASE("an abort ends a sleep though nobody is rung") {
  Waiting waiting;
  std::thread other([&] {
    while (waiting.region->rank(0).engine.wants() == 0) std::this_thread::yield();
    waiting.region->set_loss(0, Loss{0});
  });
  CHECK_THROWS_AS(waiting.wait(false), PeerLost);
  other.join();
}

}  // namespace
}  // namespace sirtaki
