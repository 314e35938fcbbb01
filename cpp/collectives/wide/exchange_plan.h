#pragma once

#include <algorithm>
#include <vector>

namespace sirtaki {

// Who exchanges what between hosts, as pure functions. All members of a process set get the same,
// for bytes cross the network without tags.

// How the hosts' sums become the sum of all:
//
// | | each host's sum is | 16-bit floats are rounded | connections |
// |---|---|---|---|
// | kAtOnce | given to all, who add alone | on the host, and at the end | one a host |
// | kDoubling | the same, passed on | on the host, and at the end | 2 log2(hosts) |
// | kDirect | sent in parts to their owners | on the host, and at the end | one a host |
// | kHalving | added in halves, level by level | on log2(hosts) levels | 2 log2(hosts) |
//
// kDirect and kHalving move 2 (hosts - 1) / hosts of the bytes over each link. Every part is added
// on one way only, so all ranks have the same bits; which way depends on nothing but the shape.

// ---- Halving and doubling, among any number of hosts ----

/// One step of them, seen from any host h: while halving, its parts [kept, had) go to host
/// h + kept, and those of host h - kept are added to its first had - kept ones; doubling is the
/// same backwards. Part i is that of host h + i. Hosts are counted in a circle.
struct HalvingStep {
  int had;
  int kept;
  int moved() const { return had - kept; }
};
/// The steps of halving, as many as hosts can be halved until one is left.
inline std::vector<HalvingStep> halving_steps(int hosts) {
  std::vector<HalvingStep> steps;
  for (int had = hosts; had > 1; had = steps.back().kept) steps.push_back({had, (had + 1) / 2});
  return steps;
}

// ---- Trees ----

/// Of the host at `position`, the root's being 0: where it gets a message from (-1: nowhere), and
/// whom it passes it on to, those first who pass it on to most.
inline int tree_parent(int position) { return position == 0 ? -1 : position & (position - 1); }
inline std::vector<int> tree_children(int hosts, int position) {
  std::vector<int> children;
  // The bits below the lowest one that is set.
  const int end = position == 0 ? hosts : position & -position;
  for (int bit = 1; bit < end && position + bit < hosts; bit *= 2) {
    children.push_back(position + bit);
  }
  std::reverse(children.begin(), children.end());
  return children;
}

}  // namespace sirtaki
