#include "collectives/algorithm.h"

#include <algorithm>
#include <bit>

#include "collectives/kinds.h"
#include "collectives/plan.h"
#include "collectives/slots/stream_slots.h"

namespace sirtaki {
namespace {

/// Whether one message to or from each host is enough.
bool goes_at_once(const Problem& p) {
  return p.bytes <= Region::kSmallBytes &&
         p.bytes * static_cast<size_t>(p.hosts - 1) <= p.rules.gathered_bytes;
}

Algorithm on_host(const Problem& p) {
  if (p.kind == Kind::kBarrier) return Algorithm::kAtOnce;
  if (p.heaps) return Algorithm::kHeaps;
  if (traits_of(p.kind).layout == Layout::kDealt) return Algorithm::kStreamed;
  // With many members, reading everything costs more than a second step.
  const auto fours = static_cast<size_t>(traits_of(p.kind).reduces ? std::max(4, p.members) : 4);
  const size_t bytes = bytes_in_slots(p.kind, p.bytes, p.members);
  if (bytes * fours <= Region::kSmallBytes * 4) return Algorithm::kAtOnce;
  const bool mirrors = p.kind == Kind::kAllreduce && p.members == 2;
  return mirrors ? Algorithm::kMirrored : Algorithm::kStreamed;
}

/// Whether all hosts talk to each other.
bool are_few(const Problem& p) { return p.hosts <= p.rules.direct_hosts; }

Algorithm for_broadcast(const Problem& p) {
  if (are_few(p)) return goes_at_once(p) ? Algorithm::kAtOnce : Algorithm::kChain;
  const size_t chunks = Chunks(p.bytes, broadcast_cut(p).chunk).count();
  const auto hosts = static_cast<size_t>(p.hosts);
  const auto depth = static_cast<size_t>(std::bit_width(hosts - 1));
  // In a chain, the root sends every chunk once; in a tree, to each of its children.
  return chunks * depth < chunks + hosts ? Algorithm::kTree : Algorithm::kChain;
}

Algorithm among_hosts(const Problem& p) {
  const KindTraits& kind = traits_of(p.kind);
  if (kind.layout != Layout::kWhole) return Algorithm::kDirect;
  if (p.kind != Kind::kBarrier && !kind.reduces) return for_broadcast(p);
  return goes_at_once(p) ? Algorithm::kAtOnce : Algorithm::kDirect;
}

}  // namespace

Algorithm algorithm_for(const Problem& problem) {
  if (problem.members == 1) return Algorithm::kAlone;
  return problem.hosts == 1 ? on_host(problem) : among_hosts(problem);
}

int radix_for(const Problem& p) {
  const bool dealt = traits_of(p.kind).layout == Layout::kDealt;
  return dealt || are_few(p) ? p.hosts : p.rules.radix;
}

size_t bytes_in_slots(Kind kind, size_t longest, int members) {
  // A gather is an alltoall that is mostly empty.
  const KindTraits& traits = traits_of(kind);
  const bool each = traits.gives_each() || (traits.takes_each() && traits.rooted);
  return each ? longest * static_cast<size_t>(members) : longest;
}

BroadcastCut broadcast_cut(const Problem& p) {
  constexpr size_t kLeast = 32 << 10;
  if (goes_at_once(p)) return {p.bytes, 1};
  const auto lanes = static_cast<size_t>(p.lanes);
  const size_t wanted =
      std::min(std::max(p.bytes / 8, kLeast), std::max(p.chunk_bytes, lanes * kSliceAlign));
  const size_t most = StreamSlots::most(p.slots);
  return {std::min(wanted * lanes, most) / kSliceAlign * kSliceAlign, p.lanes};
}

}  // namespace sirtaki
