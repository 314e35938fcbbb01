#include <sys/epoll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "engine_hosts.h"
#include "pairs/stream.h"
#include "transport/channels.h"
#include "transport/network/tcp_channel.h"

// Bytes between two ranks, when their memory may be used again, and what is left when it ends.
namespace sirtaki {
namespace {

using Bytes = std::vector<std::byte>;

Bytes pattern(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

std::span<std::byte> part(Bytes& bytes, size_t from, size_t size) {
  return std::span(bytes).subspan(from, size);
}

/// Both ends of a channel.
struct TwoEnds {
  TwoEnds() {
    std::pair<Fd, Fd> pair = testing::socket_pair();
    left = std::make_unique<TcpChannel>(1, DataSocket(std::move(pair.first)));
    right = std::make_unique<TcpChannel>(0, DataSocket(std::move(pair.second)));
  }
  std::unique_ptr<TcpChannel> left, right;
};

/// One end, and the socket at the other.
struct OneEnd {
  OneEnd() {
    std::pair<Fd, Fd> pair = testing::socket_pair();
    channel = std::make_unique<TcpChannel>(1, DataSocket(std::move(pair.first)));
    other = std::move(pair.second);
  }
  void say(const Bytes& bytes) {
    REQUIRE(::send(other.get(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
  }

  Fd other;
  std::unique_ptr<TcpChannel> channel;
};

TEST_CASE("what is sent arrives in order") {
  TwoEnds ends;
  Bytes sent = pattern(1'000'003);
  Bytes got(sent.size());
  Ticket last_sent, last_got;
  for (size_t at = 0; at < sent.size(); at += 30'011) {
    last_sent = ends.left->send(part(sent, at, std::min<size_t>(30'011, sent.size() - at)));
  }
  for (size_t at = 0; at < got.size(); at += 100'057) {
    last_got = ends.right->receive(part(got, at, std::min<size_t>(100'057, got.size() - at)));
  }
  CHECK_FALSE(last_got.done());
  while (!last_sent.done() || !last_got.done()) {
    const bool left = ends.left->flush();
    REQUIRE((ends.right->fetch() || left));
  }
  CHECK(got == sent);
}

struct Watched : OneEnd {
  Watched() { channel->watch(epoll.get()); }
  bool has_news() const {
    epoll_event event{};
    return epoll_wait(epoll.get(), &event, 1, 0) > 0;
  }

  Fd epoll{epoll_create1(EPOLL_CLOEXEC)};
};

TEST_CASE("who is told of what comes gets it at once when it was read before") {
  Watched end;
  const Bytes said = pattern(300);
  end.say(said);
  CHECK(end.has_news());
  Bytes got(300);
  const Ticket head = end.channel->receive(part(got, 0, 48));
  CHECK(end.channel->fetch());
  CHECK(head.done());
  CHECK_FALSE(end.has_news());
  CHECK(end.channel->receive(part(got, 48, 252)).done());
  CHECK(got == said);
  end.channel.reset();
}

TEST_CASE("abandoned memory is not touched any more") {
  for (const bool watched : {false, true}) {
    OneEnd end;
    const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    if (watched) end.channel->watch(epoll.get());
    Bytes wanted(100);
    end.channel->receive(wanted);
    end.say(Bytes(40, std::byte{1}));
    end.channel->fetch();
    end.channel->abandon();
    end.say(Bytes(60, std::byte{2}));
    end.channel->fetch();
    CHECK(wanted[39] == std::byte{1});
    CHECK(wanted[40] == std::byte{0});
    Bytes rest(60);
    const Ticket ticket = end.channel->receive(rest);
    end.channel->fetch();
    CHECK(ticket.done());
    CHECK(rest == Bytes(60, std::byte{2}));
    end.channel.reset();
  }
}

TEST_CASE("a channel whose other end has closed says so, and is no news any more") {
  Watched end;
  Bytes got(1);
  end.channel->receive(got);
  end.other = Fd();
  CHECK(end.has_news());
  CHECK_FALSE(end.channel->fetch());
  CHECK(end.channel->failure() == "it was closed at the other end");
  CHECK_FALSE(end.has_news());
}

TEST_CASE("what crosses on a channel goes once, whatever is done first") {
  TwoEnds ends;
  ChannelStream streams[2] = {ChannelStream(*ends.left), ChannelStream(*ends.right)};
  const Bytes sent = pattern(3'000'000);
  Bytes got[2] = {Bytes(sent.size()), Bytes(sent.size())};
  size_t written[2] = {};
  size_t read[2] = {};
  const auto write = [&](size_t i) {
    const auto head = std::span(sent).first(std::max<size_t>(written[i], 50)).subspan(written[i]);
    const auto body = std::span(sent).subspan(std::max<size_t>(written[i], 50));
    written[i] += streams[i].write(head, body);
  };
  for (int turn = 0; read[0] + read[1] < 2 * sent.size(); ++turn) {
    REQUIRE(turn < 100'000);
    for (const size_t i : {0, 1}) {
      if (written[i] < sent.size() && turn % 3 == 0) write(i);
      read[i] += streams[i].read(got[i].data() + read[i], sent.size() - read[i]);
    }
  }
  CHECK(got[0] == sent);
  CHECK(got[1] == sent);
}

// ---- Who is lost ----

/// A channel that does what the test says.
struct SilentChannel final : Channel {
  explicit SilentChannel(const bool& is_quiet) : Channel(1, {}), quiet(is_quiet) {}
  Ticket send(std::span<const std::byte>) override { return {&out_, ++out_.noted}; }
  Ticket receive(std::span<std::byte>) override { return {&in_, ++in_.noted}; }
  bool flush() override { return false; }
  bool fetch() override { return false; }
  void prepare(Sleep&) const override {}
  void abandon() override {}
  void close() override {}
  bool is_silent(int64_t) override { return quiet; }

  const bool& quiet;
};

/// Its clock is the test's.
struct SilentNetwork final : Network {
  SilentNetwork(const int64_t& clock, const bool& is_quiet) : time(clock), quiet(is_quiet) {}
  void open(std::vector<int>) override {}
  std::vector<std::unique_ptr<Channel>> opened() override {
    std::vector<std::unique_ptr<Channel>> result;
    result.push_back(std::make_unique<SilentChannel>(quiet));
    return result;
  }
  void give_up() override {}
  std::string why_broken(int) const override { return {}; }
  int64_t now() const override { return time; }
  std::span<Channel* const> ready() override { return {}; }
  void prepare(Sleep&) const override {}
  void guard() override {}

  const int64_t& time;
  const bool& quiet;
};

struct Silent {
  Silent() {
    channels.open({1});
    channels.opened();
    channels.check_patience();
  }
  /// So many seconds, in small steps.
  void pass(double seconds) {
    const auto until = time + static_cast<int64_t>(seconds * 1e9);
    for (; time < until; time += 10'000'000) channels.check_patience();
  }

  int64_t time = 1;
  bool quiet = false;
  std::shared_ptr<Region> region = Region::anonymous(1);
  Doorbell doorbell{region, 0, SpinPolicy{}};
  Channels channels{0, doorbell, std::make_unique<SilentNetwork>(time, quiet), 1};
};

TEST_CASE("a host that does not answer is named after others had time to say more") {
  Silent world;
  world.pass(10);
  world.quiet = true;
  world.pass(0.4);
  CHECK(world.channels.losing());
  CHECK_FALSE(world.doorbell.aborted());
  CHECK_THROWS_WITH_AS(world.pass(1), "lost rank 1", PeerLost);
  CHECK(world.region->loss().reason == "no answer from the other host");
}

TEST_CASE("a host that does not answer is not named where somebody else was lost before") {
  Silent world;
  world.quiet = true;
  world.pass(0.4);
  world.doorbell.abort(2);
  CHECK_THROWS_WITH_AS(world.pass(1), "lost rank 2", PeerLost);
}

TEST_CASE("a rank that has said that it leaves is not lost") {
  Silent world;
  world.channels.excuse(1);
  world.quiet = true;
  world.pass(10);
  CHECK_FALSE(world.channels.losing());
}

}  // namespace
}  // namespace sirtaki
