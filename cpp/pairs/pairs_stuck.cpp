#include <utility>

#include "pairs/pairs.h"

// Finds transfers that wait for a rank that has stopped.
namespace sirtaki {
namespace {

/// What waits for the peer, and for what; none: nothing waits.
std::optional<Pairs::Stuck> waits_for(const Peer& peer, const Matching& matching) {
  using Stuck = Pairs::Stuck;
  const Awaited sends{Phase::kSend, peer.rank};
  const Awaited takes{Phase::kTake, peer.rank};
  if (!peer.expected.empty()) return Stuck{describe(*peer.expected.front()->receive), sends};
  if (!peer.asked.empty()) return Stuck{describe(peer.asked.front().send), takes};
  const Frame* frame = peer.wire.first();
  if (frame != nullptr && frame->header.note == Note::kPart) {
    return Stuck{describe(true, peer.rank, frame->header.tag, frame->header.communicator), takes};
  }
  if (!peer.is_here()) return std::nullopt;
  if (!peer.offered.empty()) return Stuck{describe(peer.offered.begin()->second), takes};
  const auto is_from_it = [&](const Transfer& receive) { return receive.peer == peer.rank; };
  const Transfer* const receive = matching.find(is_from_it);
  return receive == nullptr ? std::nullopt : std::optional(Stuck{describe(*receive), sends});
}

}  // namespace

std::optional<Pairs::Stuck> Pairs::find_stuck(int64_t now_ns, int64_t limit_ns) {
  if (ended_) return std::nullopt;
  matching_.find([this](const Transfer& receive) {
    const bool any = receive.peer == kAnySource || receive.peer == endpoint_.rank;
    if (!any && wires_.is_here(receive.peer)) wires_.peer_of(receive.peer);  // which may be silent
    return false;                                                            // visits all of them
  });
  for (const auto& [rank, peer] : wires_.peers()) {
    std::optional<Stuck> waiting = waits_for(*peer, matching_);
    if (!waiting) {
      peer->stuck.forget();
      continue;
    }
    const uint64_t stirred =
        peer->is_here() ? endpoint_.doorbell.knock(peer->place) : peer->wire.moved();
    const bool still = std::exchange(peer->stirred, stirred) == stirred;
    if (peer->stuck.look(still, now_ns, limit_ns / 4) >= limit_ns) return waiting;
  }
  return std::nullopt;
}

}  // namespace sirtaki
