#include "base/parking.h"

#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "doctest/doctest.h"

namespace sirtaki {
namespace {

constexpr uint32_t kBall = 1;
constexpr int64_t kLongNs = 20'000'000'000;

TEST_CASE("memory of zeros is where nobody sleeps") {
  Parking parking{};
  CHECK(parking.wants() == 0);
  CHECK(parking.claim() == 0);
}

TEST_CASE("who parks says what it sleeps for until it unparks") {
  Parking parking{};
  parking.park(6);
  CHECK(parking.wants() == 6);
  parking.unpark();
  CHECK(parking.wants() == 0);
}

TEST_CASE("a sleeper is made to sleep for more, and who does not sleep is left alone") {
  Parking parking{};
  parking.want_also(4);
  CHECK(parking.wants() == 0);
  parking.park(2);
  parking.want_also(4);
  CHECK(parking.wants() == 6);
}

TEST_CASE("of several who have news one alone is told what is slept for") {
  Parking parking{};
  parking.park(2);
  CHECK(parking.claim() == 2);
  CHECK(parking.claim() == 0);
}

TEST_CASE("a wake-up after the count was read ends the sleep that follows") {
  Parking parking{};
  const Parking::Wakeups seen = parking.wakeups();
  parking.wake();
  const int64_t begin = now_ns();
  parking.sleep(seen, kLongNs);
  CHECK(now_ns() - begin < kLongNs);
}

TEST_CASE("a wake-up before the count was read does not") {
  constexpr int64_t kShortNs = 1'000'000;
  Parking parking{};
  parking.wake();
  const int64_t begin = now_ns();
  parking.sleep(parking.wakeups(), kShortNs);
  CHECK(now_ns() - begin >= kShortNs);
}

/// One side of a table at which two threads throw a ball to and fro, asleep in between.
struct Side {
  Parking parking{};
  std::atomic<int> thrown{0};

  bool catch_ball(int number) {
    while (thrown.load() != number) {
      const Parking::Wakeups seen = parking.wakeups();
      parking.park(kBall);
      const int64_t begin = now_ns();
      if (thrown.load() != number) parking.sleep(seen, kLongNs);
      parking.unpark();
      if (now_ns() - begin >= kLongNs) return false;
    }
    return true;
  }
  void throw_ball(int number) {
    thrown.store(number);
    if (parking.wants() == kBall) parking.wake();
  }
};

TEST_CASE("no news is slept through") {
  constexpr int kRounds = 20'000;
  Side left, right;
  std::atomic<bool> lost{false};
  const auto play = [&](Side& own, Side& other, bool begins) {
    for (int i = 1; i <= kRounds && !lost; ++i) {
      if (begins) other.throw_ball(i);
      if (!own.catch_ball(i)) lost = true;
      if (!begins) other.throw_ball(i);
    }
  };
  std::thread partner([&] { play(right, left, false); });
  play(left, right, true);
  partner.join();
  CHECK_FALSE(lost);
}

TEST_CASE("all who sleep at one place are woken, and see what was stored before") {
  Parking parking{};
  std::atomic<int> asleep{0}, seen{0};
  int news = 0;  // no atomic: the sanitizer sees that waking orders it
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i) {
    sleepers.emplace_back([&] {
      const Parking::Wakeups before = parking.wakeups();
      asleep.fetch_add(1, std::memory_order_relaxed);
      while (parking.wakeups() == before) parking.sleep(before, kLongNs);
      seen.fetch_add(news, std::memory_order_relaxed);
    });
  }
  while (asleep.load(std::memory_order_relaxed) < 3) std::this_thread::yield();
  news = 7;
  parking.wake();
  for (std::thread& sleeper : sleepers) sleeper.join();
  CHECK(seen == 21);
}

}  // namespace
}  // namespace sirtaki
