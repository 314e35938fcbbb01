#include "engine/control/host_aggregator.h"

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "sequencer_fleet.h"

namespace sirtaki {
namespace {

using testing::Fleet;
using testing::sum_of;

std::string up(const Request& request) {
  std::string message;
  Writer out(message);
  out.put(Up::kRequest);
  request.encode(out);
  return message;
}

std::string ready(uint32_t id) {
  std::string message;
  Writer(message).put(Up::kReady).put(id);
  return message;
}

std::string batch(const Request& base, uint32_t id, uint64_t ordinal = 0) {
  std::string message;
  Writer out(message);
  out.put(Down::kBatch).put(uint32_t{1}).put(true).put(id).put(ordinal);
  Response response;
  response.base = base;
  out(response)(std::string());
  return message;
}

TEST_CASE("what all ranks of a host report goes as one message") {
  const HostMap hosts({0, 0, 1, 1, 0, 1});
  HostAggregator host(hosts, {1, 2});
  host.receive_up(2, up(sum_of("x")), 0);
  host.receive_up(5, up(sum_of("x")), 0);
  CHECK(host.take(0).empty());
  host.receive_up(3, up(sum_of("x")), 0);
  const auto reports = host.take(0);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].from == Reporters{{}, {{1, 2}}});
  CHECK(reports[0].message == up(sum_of("x")));
  CHECK(host.deadline() == HostAggregator::kNever);
}

TEST_CASE("a late rank delays the others' reports for a few milliseconds at most") {
  const HostMap hosts({0, 0, 1, 1});
  HostAggregator host(hosts, {1, 2});
  host.receive_up(2, up(sum_of("x")), 1'000);
  CHECK(host.deadline() == 1'000 + HostAggregator::kHoldNs);
  CHECK(host.take(host.deadline() - 1).empty());
  CHECK(host.take(host.deadline()).size() == 1);
  host.receive_up(3, up(sum_of("x")), 9'000'000);
  const auto reports = host.take(9'000'000);  // none is missing any more
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].from == Reporters{{3}, {}});
  // The next round is not confused by it.
  host.receive_down(batch(sum_of("x"), 1));
  host.receive_up(2, ready(1), 9'000'000);
  CHECK(host.take(9'000'000).empty());
  host.receive_up(3, ready(1), 9'000'000);
  CHECK(host.take(9'000'000).size() == 1);
}

TEST_CASE("ranks that disagree are reported together, each as it is") {
  const HostMap hosts({0, 0, 1, 1});
  HostAggregator host(hosts, {1, 2});
  host.receive_up(2, up(sum_of("x", {4})), 0);
  host.receive_up(3, up(sum_of("x", {5})), 0);
  CHECK(host.take(0).size() == 2);
}

TEST_CASE("numbers that differ go to the sequencer one by one, and together") {
  const HostMap hosts({0, 0, 1, 1});
  HostAggregator host(hosts, {1, 2});
  host.receive_down(batch(sum_of("x", {1}), 1));
  const auto carry = [](const char* numbers) { return message_of(Up::kCarry, 1u) + numbers; };
  host.receive_up(2, carry("four"), 0);
  CHECK(host.take(0).empty());
  host.receive_up(3, carry("five"), 0);
  const auto reports = host.take(0);
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].from == Reporters{{2}, {}});
  CHECK(reports[1].message == carry("five"));
  host.receive_down(message_of(Down::kBatch, 1u, false, 1u, uint64_t{0}, std::string("nine")));
  host.receive_up(2, carry("four"), 0);
  host.receive_up(3, carry("four"), 0);
  CHECK(host.take(0).size() == 1);  // the same for both
}

TEST_CASE("an operation of which a rank has rank 0's numbers ends with its own") {
  const HostMap hosts({0, 1, 1});
  HostAggregator host(hosts, {1, 2});
  Request added = testing::add_set({0, 1});
  added.root = 7;
  host.receive_down(batch(added, 0));
  host.receive_down(batch(testing::in_set(sum_of("x", {1}), 7), 1));
  const std::string carry = message_of(Up::kCarry, 1u) + "four";
  const std::string offer = message_of(Down::kOffer, 1u, uint64_t{0}, std::string("five"));
  for (const bool offer_first : {true, false, true}) {
    if (offer_first) host.receive_down(offer);
    host.receive_up(1, carry, 0);
    if (!offer_first) host.receive_down(offer);
    const auto reports = host.take(0);
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].from == Reporters{{}, {{1, 2}}});  // and so it is the first of its name
  }
  host.receive_down(offer);
  host.receive_up(1, ready(1), 0);
  host.receive_up(1, ready(1), 0);
  CHECK(host.take(0).back().from == Reporters{{1}, {}});  // the one before is not decided
}

TEST_CASE("unnamed operations are merged by their number") {
  const HostMap hosts({0, 0, 1, 1});
  HostAggregator host(hosts, {1, 2});
  host.receive_up(2, up(sum_of("", {1})), 0);
  host.receive_up(2, up(sum_of("", {2})), 0);
  host.receive_up(3, up(sum_of("", {1})), 0);
  auto reports = host.take(0);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].message == up(sum_of("", {1})));
  host.receive_up(3, up(sum_of("", {2})), 0);
  reports = host.take(0);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].message == up(sum_of("", {2})));
}

TEST_CASE("nothing overtakes what the same rank said before") {
  const HostMap hosts({0, 0, 1, 1});
  HostAggregator host(hosts, {1, 2});
  host.receive_up(2, up(sum_of("x")), 0);
  std::string flushed;
  Writer(flushed).put(Up::kFlushed);
  host.receive_up(2, flushed, 0);
  const auto reports = host.take(0);
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].message == up(sum_of("x")));
  CHECK(reports[1].message == flushed);
}

TEST_CASE("a late report of an unnamed operation goes before those of later operations") {
  const HostMap hosts({0, 1, 1, 1});
  const std::string first = up(sum_of("", {1})), second = up(sum_of("", {2}));
  for (const bool fails : {false, true}) {
    CAPTURE(fails);
    HostAggregator host(hosts, {1, 2});
    host.receive_up(1, first, 0);
    int64_t now = HostAggregator::kHoldNs;
    REQUIRE(host.take(now).size() == 1);  // rank 1's alone: the others are late
    host.receive_up(1, second, ++now);
    host.receive_up(2, first, ++now);
    host.receive_up(2, second, ++now);
    if (fails) {
      std::string message;
      Writer(message).put(Down::kError).put_string(match_key(sum_of("", {2}), 1));
      host.receive_down(message);
    }
    const auto reports = host.take(fails ? now : host.deadline());
    REQUIRE(reports.size() == 2);
    CHECK(reports[0].message == first);
    CHECK(reports[0].from == Reporters{{2}, {}});
    CHECK(reports[1].message == second);
    CHECK(reports[1].from == Reporters{{1, 2}, {}});
    CHECK(host.deadline() == HostAggregator::kNever);
  }
}

TEST_CASE("only the members of a process set on the host are waited for") {
  const HostMap hosts({0, 0, 1, 1, 0, 1});
  HostAggregator host(hosts, {1, 2});
  Request added = testing::add_set({0, 3, 5});
  added.root = 7;
  host.receive_down(batch(added, 0));
  host.receive_up(3, up(testing::in_set(sum_of("x"), 7)), 0);
  CHECK(host.take(0).empty());
  host.receive_up(5, up(testing::in_set(sum_of("x"), 7)), 0);
  CHECK(host.take(0).size() == 1);
  Request removed = testing::remove_set(7);
  host.receive_down(batch(removed, 0));
  host.receive_up(3, up(testing::in_set(sum_of("x"), 7)), 0);
  CHECK(host.take(0).size() == 1);  // the sequencer will refuse it
}

TEST_CASE("what was reported in an earlier set does not count among the next set's members") {
  const HostMap hosts({0, 0, 1, 1, 1});
  HostAggregator host(hosts, {1, 2});
  Request first = testing::add_set({2, 4});
  first.root = 7;
  host.receive_down(batch(first, 0));
  host.receive_up(4, up(testing::in_set(sum_of("x"), 7)), 0);
  host.receive_down(batch(testing::remove_set(7), 0));
  CHECK(host.take(0).size() == 1);  // the sequencer will refuse it
  Request second = testing::add_set({2, 3, 4});
  second.root = 7;
  host.receive_down(batch(second, 0));
  for (const int rank : {2, 3, 4}) {
    CHECK(host.take(0).empty());
    host.receive_up(rank, up(testing::in_set(sum_of("x"), 7)), 0);
  }
  const auto reports = host.take(0);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].from == Reporters{{}, {{1, 2}}});
}

TEST_CASE("a process set of ranks that do not exist, or a change of the world, is refused") {
  const HostMap hosts({0, 0, 1, 1});
  HostAggregator host(hosts, {1, 2});
  const auto added = [](int32_t set, std::vector<int64_t> ranks) {
    Request request = testing::add_set(std::move(ranks));
    request.root = set;
    return batch(request, 0);
  };
  CHECK_THROWS_WITH(host.receive_down(added(7, {2, int64_t{1} << 20})),
                    doctest::Contains("a rank outside the world of 4"));
  CHECK_THROWS_WITH(host.receive_down(added(7, {-1, 2})), doctest::Contains("outside the world"));
  CHECK_THROWS_WITH(host.receive_down(added(7, {3, 2})), doctest::Contains("in ascending order"));
  CHECK_THROWS_WITH(host.receive_down(added(0, {2})), doctest::Contains("the number 0"));
  CHECK_THROWS_WITH(host.receive_down(batch(testing::remove_set(0), 0)),
                    doctest::Contains("removes the world"));
}

TEST_CASE("ranks that joined are not waited for") {
  const HostMap hosts({0, 0, 1, 1});
  HostAggregator host(hosts, {1, 2});
  host.receive_up(2, up(testing::join_of()), 0);
  CHECK(host.take(0).size() == 1);
  host.receive_up(3, up(sum_of("x")), 0);
  CHECK(host.take(0).size() == 1);
  host.receive_up(3, up(sum_of("")), 0);
  CHECK(host.take(0).size() == 1);
  host.receive_up(3, up(testing::join_of()), 0);
  CHECK(host.take(0).size() == 1);
  host.receive_down(batch(testing::join_of(), 0, 1));
  // All count alike again.
  host.receive_up(2, up(sum_of("")), 0);
  CHECK(host.take(0).empty());
  host.receive_up(3, up(sum_of("")), 0);
  CHECK(host.take(0).size() == 1);
}

TEST_CASE("a failed operation is forgotten, and what others report under its name is kept") {
  const HostMap hosts({0, 0, 1, 1});
  HostAggregator host(hosts, {1, 2});
  host.receive_up(2, up(sum_of("x")), 0);
  CHECK(host.take(HostAggregator::kHoldNs).size() == 1);
  host.receive_up(3, up(sum_of("y")), 0);
  std::string error;
  Writer(error).put(Down::kError).put_string("y").put(uint8_t{0}).put_string("why");
  host.receive_down(error);
  CHECK(host.take(0).size() == 1);
}

// ---- How it scales ----

/// Ranks on many hosts in equal numbers.
std::vector<int> spread(int host_count, int per_host) {
  std::vector<int> host_of;
  for (int rank = 0; rank < host_count * per_host; ++rank) host_of.push_back(rank / per_host);
  return host_of;
}

/// The ranks of a world on many hosts: the first host's speak to the sequencer themselves, the
/// others' through an aggregator each. Counts what the sequencer has to do.
class Cluster {
 public:
  Cluster(int host_count, int per_host, const EngineOptions& options,
          int fan_out = HostTree::kFanOut)
      : fleet(HostMap(spread(host_count, per_host), fan_out), options), per_host_(per_host) {
    const HostTree tree = fleet.hosts.tree();
    for (int h = 1; h < host_count; ++h) hosts_.emplace_back(fleet.hosts, tree.under(h));
  }

  /// All ranks submit all tensors, each host in an order of its own, and run what they are told to.
  void step(const std::vector<std::string>& names, std::mt19937& random) {
    std::vector<std::pair<int, size_t>> order;
    for (int r = 0; r < fleet.size(); ++r) {
      for (size_t t = 0; t < names.size(); ++t) order.emplace_back(r, t);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const auto& [rank, t] : order) submit(rank, sum_of(names[t]));
    while (fleet.sequencer.dispatch(0)) {
    }
    for (int r = 0; r < fleet.size(); ++r) {
      testing::Client& client = fleet.client(r);
      if (r % per_host_ == 0 && r >= per_host_) learn(r / per_host_, client.inbox);
    }
    fleet.read_all();
  }

  Fleet fleet;
  int heard = 0;  ///< messages at the sequencer

 private:
  void submit(int rank, const Request& request) {
    const std::string message = fleet.client(rank).submit(request);
    if (rank < per_host_) return hear({{rank}, {}}, message);
    HostAggregator& host = aggregator(rank / per_host_);
    host.receive_up(rank, message, 0);
    send_up(rank / per_host_);
  }

  void send_up(int host) {
    const int above = fleet.hosts.tree().parent_of(host);
    for (const auto& report : aggregator(host).take(0)) {
      if (above == 0) {
        hear(report.from, report.message);
      } else {
        aggregator(above).receive_up(report.from, report.message, 0);
        send_up(above);
      }
    }
  }

  void hear(const Reporters& from, const std::string& message) {
    ++heard;
    fleet.sequencer.receive(from, message, 0);
  }

  void learn(int host, const std::deque<std::string>& inbox) {
    for (const std::string& message : inbox) aggregator(host).receive_down(message);
  }

  HostAggregator& aggregator(int host) { return hosts_[static_cast<size_t>(host - 1)]; }

  int per_host_;
  std::deque<HostAggregator> hosts_;  // they stay where they are
};

TEST_CASE("messages at the sequencer grow with hosts, not with ranks") {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  constexpr int kSteps = 3;
  for (const auto& [hosts, per_host] : {std::pair{128, 1}, {128, 2}, {128, 8}, {32, 8}}) {
    EngineOptions options;
    options.fusion_bytes = 0;  // every operation is a batch
    Cluster cluster(hosts, per_host, options);
    std::mt19937 random(1);
    for (int step = 0; step < kSteps; ++step) cluster.step(names, random);
    const int batches = kSteps * static_cast<int>(names.size());
    for (int r = 0; r < cluster.fleet.size(); ++r) {
      CHECK(cluster.fleet.client(r).names().size() == static_cast<size_t>(batches));
    }
    const int ranks = hosts * per_host;
    const double messages = static_cast<double>(cluster.heard) / batches;
    MESSAGE(ranks, " ranks on ", hosts, " hosts: ", messages, " messages at the sequencer a batch");
    const auto children = static_cast<int>(cluster.fleet.hosts.tree().children_of(0).size());
    CHECK(cluster.heard == batches * (children + per_host));
  }
}

TEST_CASE("hosts below hosts change nothing in what ranks are told, whatever the tree") {
  const std::vector<std::string> names = {"a", "", "b"};
  for (const int fan_out : {1, 2, 3, 32}) {
    CAPTURE(fan_out);
    EngineOptions options;
    options.fusion_bytes = 0;
    Cluster cluster(9, 3, options, fan_out);
    std::mt19937 random(1);
    for (int step = 0; step < 4; ++step) cluster.step(names, random);
    for (int r = 0; r < cluster.fleet.size(); ++r) {
      CHECK(cluster.fleet.client(r).names() == cluster.fleet.client(0).names());
      CHECK(cluster.fleet.client(r).names().size() == 12);
      CHECK(cluster.fleet.client(r).errors.empty());
    }
    CHECK(cluster.heard == 12 * (std::min(fan_out, 8) + 3));
  }
}

}  // namespace
}  // namespace sirtaki
