#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/op.h"
#include "transport/exchange_rules.h"

namespace sirtaki {

// Who exchanges what between hosts, as pure functions. All members of a process set get the same,
// for bytes cross the network without tags.

/// How the hosts' sums become the sum of all.
///
/// | | each host's sum is | 16-bit floats are rounded | connections |
/// |---|---|---|---|
/// | kGathered | given to all, who add alone | on the host, and at the end | 2 log2(hosts) |
/// | kDirect | sent in parts to their owners | on the host, and at the end | one a host |
/// | kHalving | added in halves, level by level | on log2(hosts) levels | 2 log2(hosts) |
/// | kRing | handed on and added to | at each host: it takes none | 2 |
///
/// The last three move 2 (hosts - 1) / hosts of the bytes over each link. Every part is added on
/// one way only, so all ranks have the same bits; which way depends on nothing but the shape.
enum class Exchange : uint8_t { kGathered, kDirect, kHalving, kRing };

/// How a message goes from one host to all.
enum class Spread : uint8_t { kFan, kTree, kChain };

/// Of a process set: how many hosts have members, and how many members the smallest of them has.
struct HostShape {
  int hosts;
  int lanes;
};

/// Whether sums of this kind lose bits each time they are stored.
bool rounds(Dtype dtype, ReduceOp op);

/// For a reduction of `bytes`, of which all want everything.
Exchange exchange_for(const ExchangeRules& rules, const HostShape& shape, size_t bytes,
                      bool rounds);
/// For one of which every member wants its own stream, the longest of `bytes`.
Exchange exchange_for_streams(const ExchangeRules& rules, const HostShape& shape, size_t bytes,
                              bool rounds);
/// For a broadcast in so many chunks; none: at once.
Spread spread_for(const ExchangeRules& rules, int hosts, uint32_t chunks);

/// Few enough bytes to go to or from every host in one message.
bool goes_at_once(const ExchangeRules& rules, int hosts, size_t bytes);

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
std::vector<HalvingStep> halving_steps(int hosts);

// ---- The ring ----

/// What a host does with one part of the data, in its turn.
struct RingStep {
  int segment;    ///< of as many as there are hosts
  bool receives;  ///< from the host before
  bool adds;      ///< its own to it
  bool sends;     ///< to the host behind
  bool ends;      ///< it is the result from here on
};
/// All parts in turn: every segment goes round to be added up, and, where all want it, once more.
std::vector<RingStep> ring_steps(int hosts, int host, bool scattered);
/// The one part of a chain that ends at the root's host, where alone it is wanted.
std::vector<RingStep> chain_steps(int hosts, int host, int root_host);

// ---- Trees ----

/// Of the host at `position`, the root's being 0: where it gets a message from (-1: nowhere), and
/// whom it passes it on to, those first who pass it on to most.
int tree_parent(int position);
std::vector<int> tree_children(int hosts, int position);

// ---- Connections ----

/// The hosts that this one has connections to for what all of the above want, whatever the root.
std::vector<int> neighbour_hosts(const ExchangeRules& rules, int hosts, int host);

}  // namespace sirtaki
