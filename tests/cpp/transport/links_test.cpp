#include "transport/network/links.h"

#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "engine/engine.h"
#include "engine_hosts.h"
#include "transport/network/renewal.h"
#include "transport/network/tcp_channel.h"
#include "virtual_hosts.h"

// What connects ranks outlives their engines: each of these is a generation of its own.
namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;
using testing::Switchboard;
using testing::VirtualHosts;
using Floats = std::vector<float>;
using State = Renewal::State;

constexpr double kPatience = 60;
constexpr double kShortPatience = 2;  // ranks start within a fraction of it

State renew(Links& links, double timeout = kPatience) {
  Renewal renewal(links, timeout);
  return renewal.advance(kForever);
}

/// Runs `body(links, rank)` for each rank of a world with these hosts.
void run_links(const std::vector<int>& host_of, const std::function<void(Links&, int)>& body,
               int fan_out = HostTree::kFanOut) {
  VirtualHosts world(host_of, fan_out);
  testing::run_threads(
      world.hosts.size(), [&](int rank) { body(*world.make_links(rank), rank); }, [](int) {});
}

Fd copy_of(const Link& link) { return Fd(dup(link.socket.get())); }

// ---- Frames ----

struct Pair {
  Pair() : Pair(testing::socket_pair()) {}
  explicit Pair(std::pair<Fd, Fd> sockets)
      : left(std::make_unique<TcpChannel>(1, std::move(sockets.first))),
        right(std::make_unique<TcpChannel>(0, std::move(sockets.second))) {}

  std::vector<std::string> at_right() {
    std::vector<std::string> messages;
    CHECK(right.receive([&](std::string_view message) { messages.emplace_back(message); }));
    return messages;
  }

  HostLink left;
  HostLink right;
};

TEST_CASE("a message between hosts that is late for its generation is dropped") {
  Pair pair;
  pair.left.send("of the last engine");
  pair.left.begin(2);
  pair.right.begin(2);
  pair.left.send("of this one");
  CHECK(pair.at_right() == std::vector<std::string>{"of this one"});
}

TEST_CASE("a message between hosts that is early waits for its generation") {
  Pair pair;
  pair.left.begin(2);
  pair.left.send("of the next engine");
  CHECK(pair.at_right().empty());
  CHECK(pair.right.has_early());
  pair.right.begin(2);
  CHECK(pair.at_right() == std::vector<std::string>{"of the next engine"});
  CHECK_FALSE(pair.right.has_early());
}

TEST_CASE("frames of another generation in a ring are dropped") {
  const std::shared_ptr<Region> region = Region::anonymous(2);
  region->begin(3);
  std::string late;
  append_frame(late, "\x09", 2);  // would end the world
  for (int place = 0; place < 2; ++place) {
    region->down(place, RingEnd::kWrites).write(late);
    region->up(place, RingEnd::kWrites).write(late);
  }
  testing::run_threads(
      2,
      [&](int rank) {
        Engine engine(rank, HostMap::single(2), region, {}, {}, testing::quick_options());
        Floats values(4, 1.0f);
        testing::sum(engine, "x", values);
        expect(values[0] == 2.0f, "the sum is right");
      },
      [&](int rank) { Doorbell(region, rank, SpinPolicy{}).abort(rank); });
}

// ---- Engines, one after the other ----

/// One engine: sums over the world and over a set of the first and the last rank.
bool live(const std::shared_ptr<Links>& links, int number) {
  const int size = links->map().size();
  Engine engine(links->rank(), links->map(), links->region(), Links::lend(links), links->network(),
                testing::quick_options());
  Floats values(3000, static_cast<float>(links->rank() + number));
  testing::sum(engine, "x", values);
  const int total = size * number + size * (size - 1) / 2;
  expect(values[0] == static_cast<float>(total), "the sum of the world is right");
  const int32_t set = testing::add_set_of(engine, {0, size - 1});
  expect(set == 1, "sets are numbered anew");
  if (links->rank() == 0 || links->rank() == size - 1) {
    Floats own(5000, 1.0f);
    testing::sum(engine, "y", own, set);
    expect(own[4999] == 2.0f, "the sum of the set is right");
  }
  testing::barrier(engine);
  return engine.shutdown();
}

/// Ranks as threads with links of their own, on native transports; returns how many ends of
/// connections for data were opened.
int run_generations(const std::vector<int>& host_of, int generations,
                    int fan_out = HostTree::kFanOut) {
  VirtualHosts world(host_of, fan_out);
  Switchboard switchboard;
  std::atomic<int> opened{0};
  testing::run_threads(
      world.hosts.size(),
      [&](int rank) {
        const auto links =
            world.make_links(rank, {[&, rank](int peer, int number, const auto& ended) {
                                      ++opened;
                                      return switchboard.connect(rank, peer, number, ended);
                                    },
                                    {}});
        for (int i = 0; i < generations; ++i) {
          expect(live(links, i), "the engine has ended well");
          expect(renew(*links) == State::kAgreed, "all go on");
        }
      },
      [&](int rank) {
        switchboard.close();
        world.abort_all(rank);
      });
  return opened;
}

TEST_CASE("engines follow one another on the links of one host") { run_generations({0, 0, 0}, 20); }

TEST_CASE("engines follow one another on the links of several hosts, each with its own for data") {
  const std::vector<int> host_of{0, 0, 1, 1, 2};
  const int opened = run_generations(host_of, 1);
  CHECK(opened > 0);
  CHECK(run_generations(host_of, 10) == 10 * opened);
  CHECK(run_generations({0, 0, 1, 1, 2}, 5, 1) == 5 * opened);  // as a chain
}

TEST_CASE("an engine that has ended does not touch the memory that another one may use") {
  const std::shared_ptr<Region> region = Region::anonymous(2);
  testing::run_threads(
      2,
      [&](int rank) {
        Engine engine(rank, HostMap::single(2), region, {}, {}, testing::quick_options());
        testing::barrier(engine);
        REQUIRE(engine.shutdown());
        constexpr uint32_t kAnothers = 0xabc0;
        region->rank(rank).engine.park(kAnothers);
        Floats values(4, 1.0f);
        const Error error = testing::error_of([&] { testing::sum(engine, "late", values); });
        expect(contains(error.what(), "has been shut down"), error.what());
        expect(region->rank(rank).engine.wants() == kAnothers, "whose engine it is sleeps on");
      },
      [&](int rank) { Doorbell(region, rank, SpinPolicy{}).abort(rank); });
}

TEST_CASE("a rank that dies is noticed by the engine of a later generation") {
  VirtualHosts world({0, 0});
  testing::run_threads(
      2,
      [&](int rank) {
        const auto links = world.make_links(rank);
        const auto make = [&] {
          return std::make_unique<Engine>(rank, links->map(), links->region(), Links::lend(links),
                                          MakeNetwork(), testing::quick_options());
        };
        expect(make()->shutdown(), "the engine has ended well");
        expect(renew(*links) == State::kAgreed, "both go on");
        if (rank == 1) return links->close();  // without a word, as if killed
        const auto engine = make();
        const Error error = testing::error_of([&] { testing::barrier(*engine); });
        expect(contains(error.what(), "lost peer rank 1"), error.what());
      },
      [&](int rank) { world.abort_all(rank); });
}

TEST_CASE("what the sequencer says right behind the word to go reaches the next engine") {
  VirtualHosts world({0, 1});
  const auto links = world.make_links(1);
  Renewal renewal(*links, kPatience);
  REQUIRE(renewal.advance(now_ns() + 10'000'000) == State::kWaiting);
  std::string end;
  Writer(end).put(Hop::kDown).put(0).put_vector(std::vector<int32_t>{});
  Writer(end).put(Down::kShutdown).put(0);
  world.speak(0, "\x02", 2);
  world.speak(0, end, 3);
  REQUIRE(renewal.advance(kForever) == State::kAgreed);
  Engine engine(1, links->map(), links->region(), Links::lend(links), over_sockets({}),
                testing::quick_options());
  const Error error = testing::error_of([&] {
    const auto handle = engine.submit({Request{}, {}, {}});
    const int64_t limit = now_ns() + 20'000'000'000;
    while (!handle->done() && now_ns() < limit) testing::sleep_ms(1);  // without looking at sockets
    if (handle->done()) testing::check(*handle);
  });
  CHECK(contains(error.what(), "has been shut down: rank 0"));
}

// ---- All of them or none ----

TEST_CASE("all refuse when one rank has hung up") {
  for (const int lost : {0, 1, 2, 3}) {
    run_links({0, 0, 1, 1}, [&](Links& links, int rank) {
      if (rank == lost) return links.close();
      expect(renew(links) == State::kRefused, "rank " + std::to_string(rank) + " refuses");
    });
  }
}

TEST_CASE("all refuse when one rank is gone after it was ready") {
  run_links({0, 0, 1, 1, 2}, [&](Links& links, int rank) {
    if (rank == 4) {  // so rank 0 cannot let the others go before
      testing::sleep_ms(50);
      return links.close();
    }
    Renewal renewal(links, kPatience);
    if (rank == 3) {
      CHECK(renewal.advance(now_ns() + 20'000'000) == State::kWaiting);
      return links.close();
    }
    expect(renewal.advance(kForever) == State::kRefused, "it refuses");
  });
}

TEST_CASE("a host that hung up while the last engine still ran is missed") {
  VirtualHosts world({0, 1});
  std::atomic<bool> hung_up{false};
  testing::run_threads(
      2,
      [&](int rank) {
        const auto links = world.make_links(rank);
        {
          Engine engine(rank, links->map(), links->region(), Links::lend(links), over_sockets({}),
                        testing::quick_options());
          if (rank == 1) {
            expect(engine.shutdown(), "it has ended well");
            links->close();
            hung_up = true;
            return;
          }
          while (!hung_up) testing::sleep_ms(1);
          testing::sleep_ms(100);  // the engine sees it
        }
        expect(renew(*links) == State::kRefused, "nobody goes on alone");
      },
      [&](int rank) { world.abort_all(rank); });
}

TEST_CASE("a rank that hangs up is noticed though another process has its socket too") {
  VirtualHosts world({0, 0});
  const Fd forked = copy_of(world.links_of(1).local[0]);
  const auto leader = world.make_links(0);
  world.make_links(1)->close();
  CHECK(renew(*leader) == State::kRefused);
}

TEST_CASE("who does not come is known to all, and nobody goes on") {
  for (const int late : {1, 2, 3}) {
    std::atomic<int> left{3};
    run_links({0, 0, 1, 1}, [&](Links& links, int rank) {
      if (rank == late) {
        while (left > 0) testing::sleep_ms(1);
        return;
      }
      Renewal renewal(links, kShortPatience);
      const State state = renewal.advance(kForever);
      // Those behind a leader that does not come know of nobody else.
      const int named = late == 2 && rank < 2 ? 2 : late;
      --left;
      expect(state == State::kLate, "rank " + std::to_string(rank) + " is told");
      expect(renewal.missing() == std::vector<int32_t>{named}, "the right one is named");
    });
  }
}

TEST_CASE("who does not come is known on both sides of a host between") {
  std::atomic<int> left{4};
  const auto body = [&](Links& links, int rank) {
    if (rank == 4) {  // beside the leader of the last of three hosts
      while (left > 0) testing::sleep_ms(1);
      return;
    }
    Renewal renewal(links, kShortPatience);
    const State state = renewal.advance(kForever);
    --left;
    expect(state == State::kLate, "rank " + std::to_string(rank) + " is told");
    expect(renewal.missing() == std::vector<int32_t>{4}, "the right one is named");
  };
  run_links({0, 0, 1, 2, 2}, body, 1);
}

TEST_CASE("what a rank says out of turn is refused") {
  VirtualHosts world({0, 0});
  const Fd end = copy_of(world.links_of(1).local[0]);
  const auto leader = world.make_links(0);
  const char nonsense[10] = {1, 1, 0, 0, 0, 2, 0, 0, 0, 7};
  REQUIRE(::send(end.get(), nonsense, sizeof nonsense, 0) == sizeof nonsense);
  CHECK(renew(*leader) == State::kRefused);
}

}  // namespace
}  // namespace sirtaki
