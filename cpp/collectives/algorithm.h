#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/op.h"
#include "transport/exchange_rules.h"

namespace sirtaki {

/// How the members of a process set carry an operation out.
enum class Algorithm : uint8_t {
  kAlone,  ///< there is one member
  // On a host.
  kAtOnce,    ///< all give in one step and take in the next; so do few hosts
  kStreamed,  ///< chunk by chunk through the slots
  kMirrored,  ///< likewise; each of two members adds up everything
  kHeaps,     ///< where the streams lie in shared heaps; the rest through the slots
  // Between hosts.
  kDoubling,  ///< in each step all that is known is passed on
  kDirect,    ///< each part goes to whose it is; sums come back
  kHalving,   ///< in each step half of what is left goes to another host; then all comes back
  kTree,      ///< from each host to some others
  kChain,     ///< from host to host
};

/// What the choice of an algorithm depends on: equal on all members, for bytes carry no tags.
struct Problem {
  Kind kind = Kind::kBarrier;
  size_t bytes = 0;  ///< Op::longest, or what that is encoded in
  int members = 1;
  bool heaps = false;  ///< their streams may lie in shared heaps
  int hosts = 1;       ///< that have members
  int lanes = 1;       ///< as many members has each of these
  size_t slots = 0;    ///< bytes of a member's streaming slots
  size_t chunk_bytes = 0;
  ExchangeRules rules = {};
};

Algorithm algorithm_for(const Problem& problem);

/// What a member of a host has in its slots of an operation: one stream, or one for each member.
size_t bytes_in_slots(Kind kind, size_t longest, int members);

/// A broadcast among hosts: the bytes of a chunk, and how many lanes move a slice of each.
struct BroadcastCut {
  size_t chunk;
  int lanes;
};
BroadcastCut broadcast_cut(const Problem& problem);

}  // namespace sirtaki
