#include "transport/host_tree.h"

#include <algorithm>
#include <vector>

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

TEST_CASE("few hosts are a star around the first") {
  const HostTree tree(33);
  CHECK(tree.children_of(0).size() == 32);
  for (int host = 1; host < 33; ++host) {
    CHECK(tree.parent_of(host) == 0);
    CHECK(tree.under(host) == HostRange{host, host + 1});
    CHECK(tree.neighbours_of(host) == std::vector<int>{0});
  }
  CHECK(tree.height_of(0) == 1);
}

TEST_CASE("one host has no neighbours") {
  CHECK(HostTree(1).neighbours_of(0).empty());
  CHECK(HostTree(1).height_of(0) == 0);
  CHECK(HostTree(1).parent_of(0) == -1);
}

TEST_CASE("every host but the first is below exactly one other, which has few children") {
  for (const int hosts : {2, 3, 7, 34, 100, 1250}) {
    for (const int fan_out : {1, 2, 3, 32}) {
      CAPTURE(hosts);
      CAPTURE(fan_out);
      const HostTree tree(hosts, fan_out);
      for (int host = 0; host < hosts; ++host) {
        const std::vector<HostRange> children = tree.children_of(host);
        REQUIRE(static_cast<int>(children.size()) <= fan_out);
        // They follow one another, and the host itself comes before them.
        int next = host + 1;
        for (const HostRange& child : children) {
          REQUIRE(child.begin == next);
          REQUIRE(child.size() > 0);
          REQUIRE(tree.parent_of(child.begin) == host);
          REQUIRE(tree.under(child.begin) == child);
          REQUIRE(tree.height_of(child.begin) < tree.height_of(host));
          next = child.end;
        }
        REQUIRE(next == tree.under(host).end);
      }
    }
  }
}

TEST_CASE("neighbours name each other, whoever asks") {
  const HostTree tree(40, 3);
  for (int host = 0; host < 40; ++host) {
    for (const int other : tree.neighbours_of(host)) {
      const std::vector<int> back = tree.neighbours_of(other);
      CHECK(std::find(back.begin(), back.end(), host) != back.end());
    }
  }
}

TEST_CASE("the tree of 1250 hosts has three levels below the first host") {
  CHECK(HostTree(1250).height_of(0) == 3);
}

}  // namespace
}  // namespace sirtaki
