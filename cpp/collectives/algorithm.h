#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/op.h"
#include "transport/exchange_rules.h"

namespace sirtaki {

/// The way in which the members of a process set carry out an operation.
enum class Algorithm : uint8_t {
  kAlone,  ///< there is one member
  // On a host.
  kAtOnce,    ///< all give in one step and receive in the next; also among few hosts
  kStreamed,  ///< chunk by chunk through the slots
  kMirrored,  ///< the same, but each of two members adds up everything
  kHeaps,     ///< the parts in shared heaps in place; the rest through the slots
  // Between hosts.
  kDirect,  ///< each part goes to its owner; sums come back
  kTree,    ///< from each host to several others
  kChain,   ///< from host to host
};

/// The inputs to the choice of an algorithm: equal on all members, because bytes carry no tags.
struct Problem {
  Kind kind = Kind::kBarrier;
  size_t bytes = 0;  ///< Op::longest, or its encoded size
  int members = 1;
  bool heaps = false;  ///< whether their streams may lie in shared heaps
  int hosts = 1;       ///< hosts that have members
  int lanes = 1;       ///< members that each of these has
  size_t slots = 0;    ///< bytes of a member's streaming slots
  size_t chunk_bytes = 0;
  ExchangeRules rules = {};
};

Algorithm algorithm_for(const Problem& problem);

/// How many hosts exchange sums in a step of kAtOnce and kDirect: see ExchangeStep.
int radix_for(const Problem& problem);

/// The bytes that a member holds in its slots in an operation: one stream, or one for each member.
size_t bytes_in_slots(Kind kind, size_t longest, int members);

/// How to cut a broadcast among hosts: the chunk size, and the lanes that move a slice of each.
struct BroadcastCut {
  size_t chunk;
  int lanes;
};
BroadcastCut broadcast_cut(const Problem& problem);

}  // namespace sirtaki
