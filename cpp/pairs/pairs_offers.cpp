#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "pairs/pairs.h"

// Messages that are offered, and move when they are wanted.
namespace sirtaki {

// ---- Offers of peers ----

void Pairs::take_offer(Peer& peer, const Header& header) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 48;
  if (header.bytes > kMostBytes) throw Lie("a message of an impossible size");
  if (header.tag < 0) throw Lie("a negative tag");
  const bool heaps = peer.is_here() && endpoint_.heaps != nullptr;
  const uint64_t room = heaps ? endpoint_.heaps->bytes(peer.place) : 0;
  if (header.note == Note::kShow && (header.bytes > room || header.address > room - header.bytes)) {
    throw Lie("a message outside its shared arrays");
  }
  ++peer.came;
  if (ended_) return;
  if (communicators_.is_over(header.communicator)) {
    return wires_.note(peer, Note::kPulled, header.key);
  }
  Arrived offer{header, peer.rank, peer.came};
  auto receive = matching_.take_posted(peer.rank, header.communicator, header.tag);
  if (receive == nullptr) {
    return matching_.keep(std::make_unique<Arrived>(std::move(offer)));
  }
  fetch(std::move(receive), std::move(offer));
}

/// Starts to receive what was offered.
void Pairs::fetch(std::unique_ptr<Transfer> receive, Arrived offer) {
  Peer& peer = wires_.peer_of(offer.source);
  const bool wanted = has_room(*receive, offer.source, offer.bytes);
  if (wanted && offer.bytes == 0) finish(*receive, {offer.source, receive->tag, 0, offer.number});
  if (!wanted || offer.bytes == 0) return wires_.note(peer, Note::kPulled, offer.key);
  const bool readable = peer.is_here() && (single_copy_ || offer.shown());
  auto incoming = std::make_unique<Incoming>(Incoming{std::move(receive), std::move(offer)});
  if (!readable) return ask(std::move(incoming));
  pulls_.push_back(std::move(incoming));
}

void Pairs::ask(std::unique_ptr<Incoming> incoming) {
  Peer& peer = wires_.peer_of(incoming->offer.source);
  const uint64_t key = incoming->offer.key;
  incoming->got = 0;
  peer.expected.push_back(std::move(incoming));
  wires_.note(peer, Note::kAsk, key);
  wires_.note_streaming();
}

bool Pairs::advance_pulls() {
  const bool moved = !pulls_.empty();
  for (size_t i = 0; i < pulls_.size();) {
    const bool done = pull(*pulls_[i]);
    if (!done && pulls_[i]->got > 0) {
      ++i;
      continue;
    }
    std::unique_ptr<Incoming> gone = std::move(pulls_[i]);
    pulls_.erase(pulls_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!done) ask(std::move(gone));  // its memory cannot be read
  }
  return moved;
}

/// Copies a step of a message out of the sender's memory; true when it is complete. Leaves `got` at
/// 0 if the message cannot be copied.
bool Pairs::pull(Incoming& incoming) {
  const Arrived& offer = incoming.offer;
  Peer& peer = wires_.peer_of(offer.source);
  constexpr uint64_t kStep = 4 << 20;  // each step has a fixed cost
  const size_t wanted = std::min(kStep, offer.bytes - incoming.got);
  const uint64_t at = offer.address + incoming.got;
  std::byte* const to = incoming.receive->data + incoming.got;
  size_t got = 0;
  if (!offer.shown()) {
    got = single_copy_->copy(peer.place, at, to, wanted);
  } else if (const std::byte* heap = endpoint_.heaps->base(peer.place)) {
    std::memcpy(to, heap + at, wanted);
    got = wanted;
  }
  incoming.got = got == 0 ? 0 : incoming.got + got;
  if (incoming.got < offer.bytes) return false;
  // A rank that leaves announces it before its memory is reused, so the whole message must have
  // been read before this check.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (endpoint_.region->pair_block(peer.place).closed.load(std::memory_order_acquire) != 0) {
    incoming.got = 0;
    return false;
  }
  if (offer.shown()) endpoint_.heaps->count(offer.bytes);
  finish(*incoming.receive, {offer.source, incoming.receive->tag, offer.bytes, offer.number});
  wires_.note(peer, Note::kPulled, offer.key);
  return true;
}

// ---- Offers to peers ----

void Pairs::take_answer(Peer& peer, const Header& header) {
  if (ended_) return;
  auto node = peer.offered.extract(header.key);
  if (node.empty()) throw Lie("an answer to an offer that was not made");
  if (header.note == Note::kPulled) return finish(node.mapped());
  peer.asked.push_back({std::move(node.mapped()), header.key});
  feed(peer);
  wires_.note_room(peer);
}

/// Continues with messages that were asked for, a part of each in turn.
void Pairs::feed(Peer& peer) {
  while (peer.wire.idle() && !peer.asked.empty()) {
    Asked& asked = peer.asked.front();
    const uint64_t bytes = std::min<uint64_t>(kPart, asked.send.bytes - asked.sent);
    Frame part{{Note::kPart, asked.send.communicator, asked.send.tag, bytes, asked.key, 0},
               {asked.send.data + asked.sent, bytes}};
    asked.sent += bytes;
    if (asked.sent == asked.send.bytes) {
      part.owner = std::move(asked.send.owner);
      peer.asked.pop_front();
    } else {
      peer.asked.splice(peer.asked.end(), peer.asked, peer.asked.begin());
    }
    wires_.queue(peer, std::move(part));
  }
  wires_.note_streaming();
}

/// The last byte of a message has been sent off.
void Pairs::sent(const std::shared_ptr<void>& owner) {
  --open_;
  listener_.end(owner, {}, std::nullopt);
}

}  // namespace sirtaki
