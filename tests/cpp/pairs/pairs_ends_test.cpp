#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "engines.h"
#include "pairs/pairs.h"
#include "switchboard.h"

// What is left of a message, of a process set or of a connection when one end is done with it. The
// test drives both ends, step by step.
namespace sirtaki {
namespace {

using testing::contains;
using Bytes = std::vector<std::byte>;

/// How a transfer has ended.
struct End {
  bool done = false;
  std::optional<Error> error;
};

/// The messages of one rank.
struct Side final : Pairs::Listener {
  Side(std::shared_ptr<Region> region, const HostMap& map, int rank, Connect connect)
      : hosts(map),
        endpoint(std::move(region), rank, hosts.place_of(rank), SpinPolicy{0, 0}),
        pairs(endpoint, hosts, over_sockets(std::move(connect)), false, *this) {}
  ~Side() { pairs.stop(); }

  void end(const std::shared_ptr<void>& owner, const Message&,
           const std::optional<Error>& error) override {
    *std::static_pointer_cast<End>(owner) = {true, error};
  }
  void invite(int peer) override { invited = peer; }

  std::shared_ptr<End> start(bool sends, int peer, Bytes& data, int32_t set = 0, int64_t tag = 0) {
    auto end = std::make_shared<End>();
    pairs.add({sends, peer, set, tag, data.data(), data.size(), {}, end});
    return end;
  }

  const HostMap hosts;
  Endpoint endpoint;
  int invited = -1;
  Pairs pairs;
};

/// Two ranks, of one host or of two.
struct Two {
  explicit Two(const std::vector<int>& host_of) : map(host_of) {
    std::vector<std::shared_ptr<Region>> regions;
    for (int host = 0; host < map.hosts(); ++host) {
      regions.push_back(Region::anonymous(static_cast<int>(map.ranks_on(host).size())));
    }
    for (int rank = 0; rank < 2; ++rank) {
      // As who keeps the connections does, for the next engine.
      Connect connect;
      connect.open = [this, rank](int peer, int number, const Connect::Ended& ended) {
        Fd socket = switchboard.connect(rank, peer, number, ended);
        kept[rank] = Fd(dup(socket.get()));
        return socket;
      };
      const auto host = static_cast<size_t>(map.host_of(rank));
      sides[rank] = std::make_unique<Side>(regions[host], map, rank, std::move(connect));
    }
  }
  ~Two() { switchboard.close(); }

  void advance_both() {
    for (const int rank : {0, 1}) {
      sides[rank]->pairs.advance();
      if (sides[rank]->invited >= 0) sides[1 - rank]->pairs.meet(rank);
    }
  }
  template <class Done>
  void advance_until(Done done) {
    const int64_t limit = now_ns() + 20'000'000'000;
    while (!done() && now_ns() < limit) advance_both();
    CHECK(done());
  }

  HostMap map;
  testing::Switchboard switchboard;
  Fd kept[2];
  std::unique_ptr<Side> sides[2];
};

const std::vector<int> kOneHost{0, 0};
const std::vector<int> kTwoHosts{0, 1};

TEST_CASE("who has its messages still hears of a peer that waits for what was not sent yet") {
  Two two(kOneHost);
  Side& sender = *two.sides[0];
  Side& receiver = *two.sides[1];
  // More answers than a ring takes while the peer does not look.
  Bytes data(70'000);
  Bytes got(1);
  std::vector<std::shared_ptr<End>> sends;
  std::vector<std::shared_ptr<End>> receives;
  for (int i = 0; i < 3000; ++i) {
    sends.push_back(sender.start(true, 1, data));
    receives.push_back(receiver.start(false, 0, got));  // too short: refused at once
    receiver.pairs.advance();
  }
  for (const auto& one : receives) {
    while (!one->done) receiver.pairs.advance();
  }
  REQUIRE_FALSE(sends.back()->done);
  CHECK(receiver.pairs.pending());
  Sleep sleep;
  receiver.pairs.prepare(sleep);
  CHECK((sleep.messages & kPair) != 0);
  two.advance_until([&] { return sends.back()->done; });
  CHECK_FALSE(receiver.pairs.pending());
}

TEST_CASE("a message of a removed process set does not reach the next one with its number") {
  for (const auto& host_of : {kOneHost, kTwoHosts}) {
    for (const size_t bytes : {size_t{10}, size_t{100'000}}) {
      Two two(host_of);
      Side& sender = *two.sides[0];
      Side& receiver = *two.sides[1];
      Bytes old(bytes, std::byte{1});
      Bytes next(bytes, std::byte{2});
      Bytes got(bytes);
      const auto stale = sender.start(true, 1, old, 1);
      receiver.pairs.forget(1);  // before it has come
      const auto receive = receiver.start(false, 0, got, 1);
      two.advance_until([&] { return stale->done; });
      sender.pairs.forget(1);
      const auto fresh = sender.start(true, 1, next, 1);
      two.advance_until([&] { return receive->done && fresh->done; });
      CHECK_FALSE(receive->error.has_value());
      CHECK(got == next);
    }
  }
}

TEST_CASE("a message of a process set waits for who has not removed the last one of its number") {
  Two two(kOneHost);
  Bytes data(10, std::byte{2});
  Bytes got(10);
  two.sides[0]->pairs.forget(1);
  two.sides[0]->start(true, 1, data, 1);
  const auto old = two.sides[1]->start(false, 0, got, 1);
  for (int i = 0; i < 10; ++i) two.advance_both();
  CHECK_FALSE(old->done);
  two.sides[1]->pairs.forget(1);
  REQUIRE(old->error.has_value());
  CHECK(contains(old->error->what(), "receive from rank 0 with tag 0 in process set 1"));
  const auto receive = two.sides[1]->start(false, 0, got, 1);
  CHECK(receive->done);
  CHECK(got == data);
}

TEST_CASE("a connection that its other end has closed is not looked at again") {
  Two two(kTwoHosts);
  Bytes data(10);
  Bytes got(10);
  const auto receive = two.sides[1]->start(false, 0, got);
  two.sides[0]->start(true, 1, data);
  two.advance_until([&] { return receive->done; });
  two.sides[0]->pairs.end(Error(ErrorCode::kInternal, "over"));
  shutdown(two.kept[0].get(), SHUT_RDWR);
  // What is left to be done comes to an end.
  Side& receiver = *two.sides[1];
  const auto pending = receiver.start(false, 0, got);
  int turns = 0;
  while (turns < 1000 && (receiver.pairs.advance() || turns < 3)) ++turns;
  CHECK(turns < 1000);
  Sleep sleep;
  receiver.pairs.prepare(sleep);
  CHECK_FALSE(receiver.pairs.is_ready());
}

// ---- Peers that do not stir ----

constexpr int64_t kSecond = 1'000'000'000;

TEST_CASE("who waits for a rank of its host whose process does not run is told for whom") {
  for (const bool sends : {false, true}) {
    Two two(kOneHost);
    Bytes data(100'000);
    two.sides[0]->start(sends, 1, data, 0, 4);
    std::optional<Pairs::Stuck> stuck;
    int64_t now = kSecond;
    for (; !stuck && now < 100 * kSecond; now += kSecond / 4) {
      stuck = two.sides[0]->pairs.find_stuck(now, 3 * kSecond);
    }
    REQUIRE(stuck.has_value());
    CHECK(now >= 4 * kSecond);
    CHECK(stuck->awaited == Awaited{sends ? Phase::kTake : Phase::kSend, 1});
    CHECK(stuck->transfer ==
          (sends ? "send to rank 1 with tag 4" : "receive from rank 1 with tag 4"));
  }
}

TEST_CASE("who waits for a rank of its host that runs, but does not come to it, goes on to wait") {
  Two two(kOneHost);
  Bytes data(100'000);
  two.sides[0]->start(false, 1, data);
  for (int64_t now = kSecond; now < 20 * kSecond; now += kSecond / 4) {
    two.sides[1]->endpoint.region->rank(1).turns.fetch_add(1);  // its engine thread wakes
    CHECK_FALSE(two.sides[0]->pairs.find_stuck(now, 3 * kSecond).has_value());
  }
}

TEST_CASE("a message between hosts that is under way and does not move is told") {
  Two two(kTwoHosts);
  Bytes data(30'000'000);
  Bytes got(30'000'000);
  const auto send = two.sides[0]->start(true, 1, data, 0, 4);
  two.sides[1]->start(false, 0, got, 0, 4);
  const auto stuck_of = [&](int rank, int64_t from) {
    std::optional<Pairs::Stuck> stuck;
    for (int64_t now = from; !stuck && now < from + 20 * kSecond; now += kSecond / 4) {
      stuck = two.sides[rank]->pairs.find_stuck(now, 3 * kSecond);
    }
    return stuck;
  };
  CHECK_FALSE(stuck_of(0, kSecond).has_value());  // nothing is under way yet
  Pairs& sender = two.sides[0]->pairs;
  while (!sender.busy()) two.advance_both();
  while (sender.advance()) {
  }
  const auto takes = stuck_of(0, 100 * kSecond);
  REQUIRE(takes.has_value());
  CHECK(takes->transfer == "send to rank 1 with tag 4");
  const auto sends = stuck_of(1, 100 * kSecond);
  REQUIRE(sends.has_value());
  CHECK(sends->transfer == "receive from rank 0 with tag 4");
  two.advance_until([&] { return send->done; });
}

}  // namespace
}  // namespace sirtaki
