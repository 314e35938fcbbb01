#pragma once

#include <algorithm>
#include <vector>

namespace sirtaki {

// The partners and data of exchanges between hosts, as pure functions. All members of a process set
// get the same results, because bytes cross the network without tags.

// How the hosts' sums become the sum of all, with a radix: that many hosts exchange in a step. With
// as many as there are hosts, one step does; with 2, log2(hosts).
//
// | | each host's sum is | 16-bit floats are rounded | connections |
// |---|---|---|---|
// | kAtOnce | passed on to all | on the host, and at the end | 2 (radix - 1) a step |
// | kDirect | added in parts | on the host, and in each step | 2 (radix - 1) a step |
//
// kDirect moves 2 (hosts - 1) / hosts of the bytes over each link. Every part is added up in one
// order only, which depends on nothing but the shape, so all ranks have the same bits.

/// One step, as seen from any host h. Hosts are counted in a circle, and block i belongs to host h
/// + i. Of the `had` first blocks, h keeps the `kept` first, and the next ones go, `kept` at a
/// time, to the hosts h + kept, h + 2 kept and so on; those of the hosts h - kept, h - 2 kept and
/// so on are added to the blocks that it keeps. The way back, and passing on all that is known, do
/// the same backwards.
struct ExchangeStep {
  int had;
  int kept;
  int moved() const { return had - kept; }
  /// How many blocks go to the host at that distance.
  int blocks(int away) const { return std::min(kept, had - away); }
};
/// As many steps as it takes to divide the hosts by the radix until one is left.
inline std::vector<ExchangeStep> exchange_steps(int hosts, int radix) {
  std::vector<ExchangeStep> steps;
  for (int had = hosts; had > 1; had = steps.back().kept) {
    steps.push_back({had, (had + radix - 1) / radix});
  }
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
