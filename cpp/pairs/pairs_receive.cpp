#include <algorithm>
#include <cstring>
#include <utility>

#include "pairs/pairs.h"

// Handles the frames of peers.
namespace sirtaki {

/// False if the receive has failed: it has no room for the message, which is dropped.
bool Pairs::has_room(Transfer& receive, int source, uint64_t bytes) {
  if (!receive.room && bytes <= receive.bytes) return true;
  const Message got{source, receive.tag, bytes};
  const auto fail = [&](ErrorCode code, const std::string& why) {
    finish(receive, got,
           Error(code, "the message of rank " + std::to_string(source) + " has " +
                           std::to_string(bytes) + " bytes, " + why + "; it is dropped"));
    return false;
  };
  if (!receive.room) {
    return fail(ErrorCode::kMismatch,
                "more than the " + std::to_string(receive.bytes) + " that there is room for");
  }
  std::string why = "there is none";
  try {
    receive.data = receive.room(bytes);
    if (receive.data != nullptr || bytes == 0) return true;
  } catch (const std::exception& error) {
    why = error.what();
  }
  return fail(ErrorCode::kInvalid, "for which the caller has no memory (" + why + ")");
}

void Pairs::deliver(Transfer& receive, const Message& message, const std::byte* from) {
  if (!has_room(receive, message.source, message.bytes)) return;
  if (message.bytes > 0) std::memcpy(receive.data, from, message.bytes);
  finish(receive, message);
}

/// Returns the memory for the body.
std::span<std::byte> Pairs::begin(Peer& peer, const Header& header) {
  if (header.note == Note::kEager) return begin_eager(peer, header);
  if (header.note == Note::kPart) return begin_part(peer, header);
  return {};
}

std::span<std::byte> Pairs::begin_eager(Peer& peer, const Header& header) {
  if (header.bytes > kEager) throw Lie("a message too long to come unasked");
  if (header.tag < 0) throw Lie("a negative tag");
  peer.outstanding += cost_of(header.bytes);
  if (peer.outstanding > kCredit) throw Lie("more messages than were wanted");
  ++peer.came;
  peer.receiving = matching_.take_posted(peer.rank, header.communicator, header.tag);
  if (peer.receiving != nullptr) {
    if (has_room(*peer.receiving, peer.rank, header.bytes)) {
      return {peer.receiving->data, header.bytes};
    }
    peer.receiving.reset();
    return {static_cast<std::byte*>(nullptr), header.bytes};
  }
  peer.arriving = std::make_unique<Arrived>(Arrived{header, peer.rank, peer.came});
  peer.arriving->data = std::make_unique_for_overwrite<std::byte[]>(header.bytes);
  return {peer.arriving->data.get(), header.bytes};
}

std::span<std::byte> Pairs::begin_part(Peer& peer, const Header& header) {
  const auto found = std::ranges::find_if(
      peer.expected, [&](const auto& incoming) { return incoming->offer.key == header.key; });
  const bool known = found != peer.expected.end();
  if (!known && !ended_) throw Lie("a part of a message that was not asked for");
  if (header.bytes > kPart) throw Lie("a part that is too long");
  if (!known) return {static_cast<std::byte*>(nullptr), header.bytes};
  Incoming& incoming = **found;
  if (header.bytes == 0 || header.bytes > incoming.offer.bytes - incoming.got) {
    throw Lie("a part that its message does not have");
  }
  peer.part = &incoming;
  return {incoming.receive->data + incoming.got, header.bytes};
}

/// The body is complete.
void Pairs::end(Peer& peer, const Header& header) {
  switch (header.note) {
    case Note::kEager:
      return end_eager(peer, header);
    case Note::kPart:
      return end_part(peer, header);
    case Note::kOffer:
    case Note::kShow:
      return take_offer(peer, header);
    case Note::kPulled:
    case Note::kAsk:
      return take_answer(peer, header);
    case Note::kCredit:
      if (header.bytes > kCredit - peer.credit) throw Lie("more credit than there is");
      peer.credit += header.bytes;
      return;
    case Note::kBye:
      return wires_.excuse(peer);
  }
  throw Lie("a message of an unknown kind");
}

void Pairs::end_eager(Peer& peer, const Header& header) {
  if (peer.arriving != nullptr) {
    // A receive may have been posted meanwhile.
    std::unique_ptr<Arrived> message = std::move(peer.arriving);
    const auto receive = matching_.take_posted(peer.rank, header.communicator, header.tag);
    if (receive == nullptr && !communicators_.is_over(header.communicator)) {
      return matching_.keep(std::move(message));
    }
    if (receive != nullptr) {
      deliver(*receive, {peer.rank, header.tag, header.bytes, message->number},
              message->data.get());
    }
  } else if (peer.receiving != nullptr) {
    const std::unique_ptr<Transfer> receive = std::move(peer.receiving);
    finish(*receive, {peer.rank, header.tag, header.bytes, peer.came});
  }
  give_back(peer.rank, header.bytes);
}

void Pairs::end_part(Peer& peer, const Header& header) {
  Incoming* const part = std::exchange(peer.part, nullptr);
  if (part == nullptr) return;
  part->got += header.bytes;
  if (part->got < part->offer.bytes) return;
  const auto found = std::ranges::find_if(
      peer.expected, [&](const auto& incoming) { return incoming.get() == part; });
  const std::unique_ptr<Incoming> incoming = std::move(*found);
  peer.expected.erase(found);
  finish(*incoming->receive,
         {peer.rank, incoming->receive->tag, incoming->offer.bytes, incoming->offer.number});
  wires_.note_streaming();
}

/// Counts an eager message of the rank as no longer kept; a rank's messages to itself use no wire.
void Pairs::give_back(int rank, uint64_t bytes) {
  constexpr uint64_t kLump = kCredit / 8;
  if (rank == endpoint_.rank) return;
  Peer& peer = wires_.peer_of(rank);
  peer.owed += cost_of(bytes);
  if (peer.owed < kLump) return;
  const uint64_t owed = std::exchange(peer.owed, 0);
  peer.outstanding -= owed;
  wires_.note(peer, Note::kCredit, 0, owed);
}

}  // namespace sirtaki
