#pragma once

#include <algorithm>
#include <vector>

namespace sirtaki {

// The partners and data of exchanges between hosts, as pure functions. All members of a process set
// get the same results, because bytes cross the network without tags.

// How the hosts' sums become the sum of all:
//
// | | each host's sum is | 16-bit floats are rounded | connections |
// |---|---|---|---|
// | kAtOnce | sent to all; each host adds | on the host, and at the end | one a host |
// | kDoubling | the same, passed on | on the host, and at the end | 2 log2(hosts) |
// | kDirect | sent in parts to their owners | on the host, and at the end | one a host |
// | kHalving | added in halves, level by level | on log2(hosts) levels | 2 log2(hosts) |
//
// kDirect and kHalving move 2 (hosts - 1) / hosts of the bytes over each link. Every part is added
// up in one order only, which depends on nothing but the shape, so all ranks have the same bits.

// ---- Halving and doubling, among any number of hosts ----

/// One step of these, as seen from any host h. While halving, its parts [kept, had) go to host h +
/// kept, and those of host h - kept are added to its first had - kept ones; doubling does the same
/// backwards. Part i belongs to host h + i. Hosts are counted in a circle.
struct HalvingStep {
  int had;
  int kept;
  int moved() const { return had - kept; }
};
/// The steps of halving: as many as it takes to halve the hosts until one is left.
inline std::vector<HalvingStep> halving_steps(int hosts) {
  std::vector<HalvingStep> steps;
  for (int had = hosts; had > 1; had = steps.back().kept) steps.push_back({had, (had + 1) / 2});
  return steps;
}

// ---- Trees ----

/// For the host at `position`, where the root has 0: the host it receives a message from (-1:
/// none), and the hosts it passes the message on to, those with the most children first.
inline int tree_parent(int position) { return position == 0 ? -1 : position & (position - 1); }
inline std::vector<int> tree_children(int hosts, int position) {
  std::vector<int> children;
  // The bits below the lowest set bit.
  const int end = position == 0 ? hosts : position & -position;
  for (int bit = 1; bit < end && position + bit < hosts; bit *= 2) {
    children.push_back(position + bit);
  }
  std::reverse(children.begin(), children.end());
  return children;
}

}  // namespace sirtaki
