#include "collectives/wide/exchange_plan.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

constexpr ExchangeRules kRules;
constexpr std::array kHosts = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 100, 1249, 1250};

TEST_CASE("few hosts exchange all but small messages directly") {
  for (int hosts = 2; hosts <= 8; ++hosts) {
    for (const size_t bytes : {size_t{70'000}, size_t{1} << 30}) {
      CHECK(exchange_for(kRules, {hosts, 4}, bytes, false) == Exchange::kDirect);
      CHECK(exchange_for(kRules, {hosts, 4}, bytes, true) == Exchange::kDirect);
      CHECK(exchange_for_streams(kRules, {hosts, 4}, bytes, false) == Exchange::kDirect);
    }
    CHECK(spread_for(kRules, hosts, 0) == Spread::kFan);
    CHECK(spread_for(kRules, hosts, 1) == Spread::kChain);
  }
}

TEST_CASE("many hosts gather small sums, halve longer ones and hand large ones round") {
  const auto of = [](size_t bytes) { return exchange_for(kRules, {16, 2}, bytes, false); };
  CHECK(of(4) == Exchange::kGathered);
  CHECK(of(4369) == Exchange::kGathered);  // 64 KiB / 15
  CHECK(of(4370) == Exchange::kHalving);
  CHECK(of((1 << 20) - 1) == Exchange::kHalving);
  CHECK(of(1 << 20) == Exchange::kRing);  // 32 KiB for each of 16 hosts and 2 lanes
}

TEST_CASE("what loses bits each time it is stored does not go round the ring") {
  CHECK(exchange_for(kRules, {16, 1}, 1 << 30, true) == Exchange::kHalving);
  CHECK(exchange_for_streams(kRules, {16, 1}, 1 << 30, true) == Exchange::kHalving);
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16}) {
    CHECK(rounds(dtype, ReduceOp::kSum));
    CHECK(rounds(dtype, ReduceOp::kProduct));
    CHECK_FALSE(rounds(dtype, ReduceOp::kMin));
    CHECK_FALSE(rounds(dtype, ReduceOp::kMax));
  }
  CHECK(rounds(Dtype::kC32, ReduceOp::kSum));
  CHECK_FALSE(rounds(Dtype::kF32, ReduceOp::kSum));
}

TEST_CASE("a broadcast among many hosts takes a tree unless a chain's length is little beside it") {
  CHECK(spread_for(kRules, 16, 0) == Spread::kTree);
  CHECK(spread_for(kRules, 16, 5) == Spread::kTree);   // 4 times 5 chunks; a chain has 16 + 5 steps
  CHECK(spread_for(kRules, 16, 6) == Spread::kChain);  // 24; 22
  CHECK(spread_for(kRules, 1250, 100) == Spread::kTree);
  CHECK(spread_for(kRules, 1250, 200) == Spread::kChain);
}

TEST_CASE("halving takes as few steps as can be and moves every part but one") {
  for (const int hosts : kHosts) {
    CAPTURE(hosts);
    size_t least = 0;
    while ((1 << least) < hosts) ++least;
    const std::vector<HalvingStep> steps = halving_steps(hosts);
    CHECK(steps.size() == least);
    int moved = 0;
    for (const HalvingStep& step : steps) moved += step.moved();
    CHECK(moved == hosts - 1);
  }
}

/// Which hosts' numbers are in each part of each host: [host][distance to the part's owner].
using Sums = std::vector<std::vector<std::multiset<int>>>;

TEST_CASE("halving adds every host's part exactly once") {
  for (const int hosts : kHosts) {
    if (hosts > 100) continue;
    CAPTURE(hosts);
    const auto n = static_cast<size_t>(hosts);
    Sums sums(n, std::vector<std::multiset<int>>(n));
    for (int h = 0; h < hosts; ++h) {
      for (auto& part : sums[static_cast<size_t>(h)]) part = {h};
    }
    for (const HalvingStep& step : halving_steps(hosts)) {
      const Sums before = sums;
      for (int h = 0; h < hosts; ++h) {
        const auto from = static_cast<size_t>((h - step.kept + hosts) % hosts);
        for (int i = 0; i < step.moved(); ++i) {
          const auto& added = before[from][static_cast<size_t>(step.kept + i)];
          sums[static_cast<size_t>(h)][static_cast<size_t>(i)].insert(added.begin(), added.end());
        }
      }
    }
    std::multiset<int> all;
    for (int h = 0; h < hosts; ++h) all.insert(h);
    for (const auto& parts : sums) CHECK(parts[0] == all);
  }
}

TEST_CASE("round the ring every segment is added by each host once, and ends at all of them") {
  for (const int hosts : kHosts) {
    if (hosts == 1 || hosts > 100) continue;
    CAPTURE(hosts);
    for (const bool scattered : {false, true}) {
      std::vector<int> adds(static_cast<size_t>(hosts)), ends(static_cast<size_t>(hosts));
      for (int h = 0; h < hosts; ++h) {
        const auto own = ring_steps(hosts, h, scattered);
        const auto behind = ring_steps(hosts, (h + 1) % hosts, scattered);
        CHECK_FALSE(own.front().receives);
        CHECK_FALSE(own.back().sends);
        for (size_t i = 0; i < own.size(); ++i) {
          adds[static_cast<size_t>(own[i].segment)] += own[i].adds ? 1 : 0;
          ends[static_cast<size_t>(own[i].segment)] += own[i].ends ? 1 : 0;
          if (scattered && own[i].ends) CHECK(own[i].segment == h);
          if (!own[i].sends) continue;
          // What is sent in one turn is received in the next.
          CHECK(behind[i + 1].receives);
          CHECK(behind[i + 1].segment == own[i].segment);
        }
      }
      for (const int count : adds) CHECK(count == hosts);
      for (const int count : ends) CHECK(count == (scattered ? 1 : hosts));
    }
  }
}

TEST_CASE("a chain begins behind the root's host and ends there") {
  for (const int hosts : {2, 3, 5, 16}) {
    for (int root = 0; root < hosts; ++root) {
      for (int h = 0; h < hosts; ++h) {
        const auto steps = chain_steps(hosts, h, root);
        REQUIRE(steps.size() == 1);
        CHECK(steps[0].receives == (h != (root + 1) % hosts));
        CHECK(steps[0].sends == (h != root));
        CHECK(steps[0].ends == (h == root));
        CHECK(steps[0].adds);
      }
    }
  }
}

TEST_CASE("a tree reaches every host once, in as many steps as the hosts can be halved") {
  for (const int hosts : kHosts) {
    CAPTURE(hosts);
    std::vector<size_t> reached(static_cast<size_t>(hosts));  // after so many steps
    for (int position = 0; position < hosts; ++position) {
      const std::vector<int> children = tree_children(hosts, position);
      for (size_t i = 0; i < children.size(); ++i) {
        CHECK(tree_parent(children[i]) == position);
        CHECK(children[i] > position);
        size_t& step = reached[static_cast<size_t>(children[i])];
        CHECK(step == 0);
        step = reached[static_cast<size_t>(position)] + i + 1;
        CHECK(step <= halving_steps(hosts).size());
      }
    }
    CHECK(tree_parent(0) == -1);
    CHECK(std::count(reached.begin(), reached.end(), 0) == 1);  // the root
  }
}

TEST_CASE(
    "a rank of 1250 hosts is connected to far fewer, whatever it does and whoever the root is") {
  for (const int hosts : {9, 16, 100, 1024, 1250}) {
    CAPTURE(hosts);
    for (const int host : {0, 1, hosts / 2, hosts - 1}) {
      const std::vector<int> peers = neighbour_hosts(kRules, hosts, host);
      CHECK(peers.size() <= 44);
      const std::set<int> known(peers.begin(), peers.end());
      CHECK(known.count(host) == 0);
      for (int root = 0; root < hosts; ++root) {
        const int position = (host - root + hosts) % hosts;
        if (position != 0) CHECK(known.count((tree_parent(position) + root) % hosts) == 1);
        for (int child : tree_children(hosts, position)) {
          CHECK(known.count((child + root) % hosts) == 1);
        }
      }
    }
  }
}

TEST_CASE("both ends of a connection know each other as neighbours") {
  for (const int hosts : {2, 8, 9, 16, 37}) {
    for (int h = 0; h < hosts; ++h) {
      for (const int other : neighbour_hosts(kRules, hosts, h)) {
        const std::vector<int> theirs = neighbour_hosts(kRules, hosts, other);
        CHECK(std::find(theirs.begin(), theirs.end(), h) != theirs.end());
      }
    }
  }
}

}  // namespace
}  // namespace sirtaki
