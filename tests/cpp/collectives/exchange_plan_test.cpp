#include "collectives/inter_host/exchange_plan.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

constexpr std::array kHosts = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 100, 1249, 1250};

constexpr std::array kRadices = {2, 3, 4, 8, 1250};

TEST_CASE("an exchange takes as few steps as can be and moves every part but one") {
  for (const int hosts : kHosts) {
    for (const int radix : kRadices) {
      CAPTURE(hosts);
      CAPTURE(radix);
      size_t least = 0;
      for (int reached = 1; reached < hosts; reached *= radix) ++least;
      const std::vector<ExchangeStep> steps = exchange_steps(hosts, radix);
      CHECK(steps.size() == least);
      int moved = 0;
      for (const ExchangeStep& step : steps) {
        moved += step.moved();
        CHECK((step.had - 1) / step.kept < radix);
      }
      CHECK(moved == hosts - 1);
    }
  }
}

/// Which hosts' numbers are in each part of each host: [host][distance to the part's owner].
using Sums = std::vector<std::vector<std::multiset<int>>>;

TEST_CASE("an exchange adds every host's part exactly once") {
  for (const int hosts : kHosts) {
    if (hosts > 100) continue;
    for (const int radix : kRadices) {
      CAPTURE(hosts);
      CAPTURE(radix);
      const auto n = static_cast<size_t>(hosts);
      Sums sums(n, std::vector<std::multiset<int>>(n));
      for (int h = 0; h < hosts; ++h) {
        for (auto& part : sums[static_cast<size_t>(h)]) part = {h};
      }
      for (const ExchangeStep& step : exchange_steps(hosts, radix)) {
        const Sums before = sums;
        for (int h = 0; h < hosts; ++h) {
          for (int away = step.kept; away < step.had; away += step.kept) {
            const auto from = static_cast<size_t>((h - away + hosts) % hosts);
            for (int i = 0; i < step.blocks(away); ++i) {
              const auto& added = before[from][static_cast<size_t>(away + i)];
              sums[static_cast<size_t>(h)][static_cast<size_t>(i)].insert(added.begin(),
                                                                          added.end());
            }
          }
        }
      }
      std::multiset<int> all;
      for (int h = 0; h < hosts; ++h) all.insert(h);
      for (const auto& parts : sums) CHECK(parts[0] == all);
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
        CHECK(step <= exchange_steps(hosts, 2).size());
      }
    }
    CHECK(tree_parent(0) == -1);
    CHECK(std::count(reached.begin(), reached.end(), 0) == 1);  // the root
  }
}

/// The hosts that this one has connections to for what many hosts want, whatever the root.
std::set<int> neighbour_hosts(int hosts, int host) {
  std::set<int> result;
  const auto add = [&](int distance) {
    result.insert({(host + distance) % hosts, (host + hosts - distance) % hosts});
  };
  for (const ExchangeStep& step : exchange_steps(hosts, 2)) add(step.kept);
  for (int distance = 1; distance < hosts; distance *= 2) add(distance);
  return result;
}

TEST_CASE(
    "a rank of 1250 hosts is connected to far fewer, whatever it does and whoever the root is") {
  for (const int hosts : {9, 16, 100, 1024, 1250}) {
    CAPTURE(hosts);
    for (const int host : {0, 1, hosts / 2, hosts - 1}) {
      const std::set<int> known = neighbour_hosts(hosts, host);
      CHECK(known.size() <= 44);
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

}  // namespace
}  // namespace sirtaki
