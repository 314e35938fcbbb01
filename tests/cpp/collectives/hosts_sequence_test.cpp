#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "case_sequences.h"
#include "collective_case.h"
#include "doctest/doctest.h"
#include "virtual_hosts.h"

// Many collectives between hosts one after the other, process sets, pairs, and what goes wrong.
namespace sirtaki {
namespace {

using testing::Bytes;
using testing::Case;
using testing::CaseMaker;
using testing::expect;
using testing::HostedMember;
using testing::op_of;
using testing::SetsPlan;

constexpr int kRounds = testing::kSanitized ? 60 : 300;

const testing::Choices kChoices{{Dtype::kU8, Dtype::kI64, Dtype::kI32},
                                {0, 1, 100, 3000, 20'000, 60'000}};

TEST_CASE("process sets that span some of the hosts run collectives in any order") {
  const SetsPlan five(5, {{0, 2}, {1, 2, 3}, {0, 1}, {3, 4}, {4}, {0, 1, 3, 4}}, kChoices);
  testing::run_on_hosts({0, 0, 1, 2, 2}, testing::kSmallestChunk,
                        [&](HostedMember& member) { five.run(member, 2 * kRounds); });
  const SetsPlan six(6, {{0, 2, 4}, {1, 3, 5}, {0, 5}, {1, 2, 3, 4, 5}}, kChoices);
  testing::run_on_hosts({0, 1, 0, 1, 0, 2}, testing::kSmallestChunk,
                        [&](HostedMember& member) { six.run(member, kRounds); });
}

TEST_CASE("a process set's number may be used again for ranks on other hosts") {
  testing::run_on_hosts({0, 0, 1, 1}, testing::kSmallestChunk, [](HostedMember& member) {
    testing::use_a_number_again(member, kChoices);
  });
}

TEST_CASE("the last rank of a host may be very late") {
  const std::vector<int> layout = {0, 0, 1, 1};
  std::vector<Case> cases;
  for (const Kind kind : testing::kDataKinds) {
    cases.push_back(CaseMaker(op_of(kind, Dtype::kI32, 1), 4, 30'000, 1).make());
  }
  testing::run_on_hosts(layout, testing::kSmallestChunk, [&](HostedMember& member) {
    for (const Case& c : cases) {
      if (member.rank == 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      testing::run_case(member, c, static_cast<size_t>(member.rank));
    }
  });
}

// ---- What goes wrong ----

Connect connecting_fails(const std::string& why) {
  Connect connect;
  connect.open = [why](int, int, const Connect::Ended&) -> Fd { throw std::runtime_error(why); };
  return connect;
}

Fd broken_socket() {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  close(pair[1]);
  return Fd(pair[0]);
}

/// Of rank 1, alone on its host.
InterHostNet net_of(Endpoint& endpoint, Connect connect) {
  return {1, endpoint.doorbell, over_sockets(std::move(connect))(endpoint.doorbell, {}), 0};
}

/// Connects to rank 0.
void open(InterHostNet& net) {
  Strand strand(net.open({0}));
  while (!strand.advance()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// From rank 0 to all.
void pass(HostedMember& member, Bytes& buffer) {
  Op op = op_of(Kind::kBroadcast, Dtype::kU8, 0);
  op.longest = buffer.size();
  Streams stream(1);
  stream[0].add(buffer.data(), buffer.size());
  member.run(op, stream, stream);
}

TEST_CASE("a lost rank of another host ends every collective and is named" *
          doctest::test_suite("slow")) {
  for (const Kind kind : testing::kDataKinds) {
    const Case c = CaseMaker(op_of(kind, Dtype::kI32), 3, 50'000, 2).make();
    std::atomic<int> failed{0};
    testing::run_on_hosts({0, 1, 2}, testing::kSmallestChunk, [&](HostedMember& member) {
      testing::run_case(member, c, static_cast<size_t>(member.rank));
      if (member.rank == 2) {
        // As when the process ends: some hear of it from the socket, others from those that did.
        member.backend.reset();
        return;
      }
      try {
        for (;;) testing::run_case(member, c, static_cast<size_t>(member.rank));
      } catch (const PeerLost& lost) {
        expect(lost.rank == 2, "the lost rank is named");
        failed.fetch_add(1);
        member.tell_hosts(2);
      }
    });
    CHECK(failed == 2);
  }
}

TEST_CASE("a closed socket ends the operation of both ends") {
  std::atomic<int> failed{0};
  testing::run_on_hosts({0, 1}, testing::kSmallestChunk, [&](HostedMember& member) {
    Bytes data(100'000);
    if (member.rank == 0) {
      pass(member, data);
      member.backend.reset();
      return;
    }
    pass(member, data);
    try {
      pass(member, data);
    } catch (const PeerLost& lost) {
      expect(lost.rank == 0, "the lost rank is named");
      expect(member.endpoint.doorbell.aborted(), "the other ranks of the host are told");
      const Loss loss = member.endpoint.region->loss();
      expect(loss.reporter == 1, "who reports it is told");
      expect(loss.reason == "it was closed at the other end", loss.reason.c_str());
      failed.fetch_add(1);
    }
  });
  CHECK(failed == 1);
}

/// Rank 1, whose only connection, to rank 0, breaks when it is used.
struct Broken {
  Broken() {
    open(net);
    net.receive(0, &byte, 1);
  }

  std::shared_ptr<Region> region = Region::anonymous(1);
  Endpoint endpoint{region, 1, 0, SpinPolicy{0, 0}};
  InterHostNet net = net_of(
      endpoint, {[](int, int, const Connect::Ended&) { return broken_socket(); },
                 [](int rank) { return "the certificate of rank " + std::to_string(rank); }});
  std::byte byte{};
};

TEST_CASE("who made a connection knows better than its socket why it broke") {
  Broken broken;
  const auto use_until_lost = [&] {
    for (;;) broken.net.progress();
  };
  CHECK_THROWS_WITH_AS(use_until_lost(), "lost rank 0", PeerLost);
  CHECK(broken.region->loss().reason == "the certificate of rank 0");
}

TEST_CASE("a connection that breaks because of a third rank does not name its other end") {
  Broken broken;
  CHECK_FALSE(broken.net.progress());  // others are given time to say more
  CHECK(broken.net.busy());
  Sleep sleep;
  broken.net.prepare(sleep);
  CHECK(sleep.polled.empty());
  broken.endpoint.doorbell.abort(2);
  CHECK_THROWS_WITH_AS(broken.net.progress(), "lost rank 2", PeerLost);
}

TEST_CASE("opening a connection ends with the world, and names whoever was lost first") {
  const auto region = Region::anonymous(1);
  Endpoint endpoint(region, 1, 0, SpinPolicy{0, 0});
  Connect connect;
  connect.open = [&](int, int, const Connect::Ended& ended) -> Fd {
    CHECK_FALSE(ended());
    endpoint.doorbell.abort(2);
    CHECK(ended());
    throw std::runtime_error("the world has ended");
  };
  InterHostNet net = net_of(endpoint, connect);
  CHECK_THROWS_WITH_AS(open(net), "lost rank 2", PeerLost);
}

TEST_CASE("who waits for a connection hears of a lost world") {
  const auto region = Region::anonymous(1);
  Endpoint endpoint(region, 1, 0, SpinPolicy{0, 0});
  Connect connect;
  connect.open = [&](int, int, const Connect::Ended& ended) -> Fd {
    endpoint.doorbell.abort(2);
    while (!ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    throw std::runtime_error("given up");
  };
  InterHostNet net = net_of(endpoint, connect);
  Strand strand(net.open({0}));
  const auto wait = [&] {
    while (!strand.advance()) {
      endpoint.doorbell.wait([&] { return strand.is_ready(); },
                             [&] {
                               Sleep sleep;
                               net.prepare(sleep);
                               return sleep;
                             });
    }
  };
  CHECK_THROWS_WITH_AS(wait(), "lost rank 2", PeerLost);
}

TEST_CASE("a rank that waits for a silent host ends when the world does") {
  std::atomic<bool> connected{false};
  testing::run_on_hosts({0, 1}, testing::kSmallestChunk, [&](HostedMember& member) {
    Bytes data(1000);
    pass(member, data);
    if (member.rank == 0) {
      connected.wait(false);
      return member.tell_hosts(0);
    }
    connected = true;
    connected.notify_all();
    bool ended = false;
    try {
      pass(member, data);
    } catch (const PeerLost& lost) {
      ended = lost.rank == 0;
    }
    expect(ended, "the wait ends");
  });
}

TEST_CASE("ranks that run different operations get an error, not garbage") {
  std::atomic<int> told{0};
  testing::run_on_hosts({0, 1}, testing::kSmallestChunk, [&](HostedMember& member) {
    Bytes data(member.rank == 0 ? 1000 : 2000);
    Streams stream(1);
    stream[0].add(data.data(), data.size());
    Op op = op_of(Kind::kAllreduce, Dtype::kF32);
    op.longest = data.size();
    try {
      member.run(op, stream, stream);
    } catch (const PeerLost&) {
      // The other one was quicker to find it.
    } catch (const Error& error) {
      expect(error.code == ErrorCode::kMismatch, "it is a mismatch");
      expect(std::string(error.what()).find("another operation") != std::string::npos,
             "it says so");
      told.fetch_add(1);
    }
  });
  CHECK(told >= 1);
}

TEST_CASE("a peer that cannot be reached is named with the reason") {
  const HostMap hosts({0, 1});
  Endpoint endpoint(Region::anonymous(1), 0, 0, SpinPolicy{});
  NativeBackend backend(endpoint, hosts, over_sockets(connecting_fails("no route")));
  const Streams nothing(1);
  const auto meet = [&] {
    testing::run_to_end(backend, endpoint.doorbell, op_of(Kind::kBarrier, Dtype::kU8), nothing,
                        nothing, 1 << 16);
  };
  CHECK_THROWS_WITH_AS(meet(), "lost rank 1", PeerLost);
  CHECK(endpoint.region->loss().reason == "it cannot be opened: no route");
}

}  // namespace
}  // namespace sirtaki
