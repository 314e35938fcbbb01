#include "transport/memory/doorbell.h"

#include <sched.h>

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

TEST_CASE("a wait ends at its limit, not at the next look for an abort") {
  constexpr int kWaits = 50;
  constexpr int64_t kLimitNs = 1'000'000;
  Waiting waiting;
  Sleep sleep;
  sleep.messages = kControl;
  for (const bool polls : {false, true}) {
    if (polls) sleep.polled.push_back({-1, 0, 0});
    const int64_t begun = now_ns();
    for (int i = 0; i < kWaits; ++i) {
      waiting.doorbell.wait([] { return false; }, [&] { return sleep; }, now_ns() + kLimitNs);
    }
    CHECK(now_ns() - begun < 2'500'000'000);  // each look: 100 ms
  }
}

TEST_CASE("a rank does not poll on the core on which another one waits") {
  constexpr int64_t kPatienceNs = 20'000'000'000;
  const auto region = Region::anonymous(2);
  Doorbell doorbell(region, 0, {kPatienceNs, 0});
  doorbell.drive_as_caller(true);
  std::atomic<bool> ready{false};
  bool slept = false;
  std::thread peer([&] {
    const int64_t begun = now_ns();
    while (!slept && now_ns() - begun < kPatienceNs / 2) {
      slept = region->rank(0).caller.wants() != 0;
      std::this_thread::yield();
    }
    ready = true;
    Doorbell(region, 1, {0, 0}).ring(0, kControl);
  });
  cpu_set_t before, one;
  sched_getaffinity(0, sizeof before, &before);
  const int core = sched_getcpu();
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(core), &one);
  sched_setaffinity(0, sizeof one, &one);  // of this thread alone
  region->rank(1).core = core + 1;
  Sleep sleep;
  sleep.messages = kControl;
  doorbell.wait([&] { return ready.load(); }, [&] { return sleep; });
  peer.join();
  sched_setaffinity(0, sizeof before, &before);
  CHECK(slept);
  CHECK(region->rank(0).core == core + 1);
}

}  // namespace
}  // namespace sirtaki
