#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "pairs/pairs.h"

// What goes to and comes from each peer.
namespace sirtaki {
namespace {

/// A peer says what no rank says.
struct Lie : Error {
  explicit Lie(const std::string& what) : Error(ErrorCode::kInternal, what) {}
};

}  // namespace

// ---- Peers ----

Pairs::Peer& Pairs::peer_of(int rank) {
  const auto found = peers_.find(rank);
  if (found != peers_.end()) return *found->second;
  Peer& peer = make_peer(rank);
  if (peer.place < 0) events_.invite(rank);
  return peer;
}

Pairs::Peer& Pairs::make_peer(int rank) {
  const bool here = hosts_.host_of(rank) == hosts_.host_of(endpoint_.rank);
  if (!here && channels_ == nullptr) {
    throw Error(ErrorCode::kInternal, "no network leads to rank " + std::to_string(rank));
  }
  Peer& peer = *(peers_[rank] = std::make_unique<Peer>(rank));
  if (here) {
    peer.place = hosts_.place_of(rank);
    local_[static_cast<size_t>(peer.place)] = &peer;
    peer.wire.use(std::make_unique<RingStream>(*endpoint_.region, endpoint_.doorbell,
                                               endpoint_.place, peer.place));
    return peer;
  }
  channels_->open({rank});
  return peer;
}

void Pairs::meet(int rank) {
  if (peers_.count(rank) == 0 && !ended_) make_peer(rank);
}

bool Pairs::take_opened() {
  if (channels_ == nullptr || ended_) return false;
  const std::vector<Channel*> opened = channels_->opened();
  for (Channel* channel : opened) {
    connected_ = true;
    Peer& peer = *peers_.at(channel->rank());
    peer.channel = channel;
    peer.wire.use(std::make_unique<ChannelStream>(*channel), channel->keys());
    push(peer);
  }
  return !opened.empty();
}

void Pairs::lose_channel(Peer& peer) {
  peer.wire.close();
  peer.clogged = false;
  note_streaming();
  if (!ended_) channels_->lose(*peer.channel);
}

void Pairs::lose(int rank, const std::string& why) {
  endpoint_.doorbell.abort({rank, endpoint_.rank, why});
  endpoint_.doorbell.check_abort();  // names whoever was lost first
  throw PeerLost(rank);
}

// ---- What goes out ----

void Pairs::note(Peer& peer, Note what, uint64_t key, uint64_t bytes) {
  write(peer, {{what, 0, 0, bytes, key, 0}});
}

void Pairs::write(Peer& peer, Frame frame) {
  if (ended_) return;
  try {
    queue(peer, std::move(frame));
    note_room(peer);
  } catch (const Error&) {
    lose_by_error(peer);
  }
}

void Pairs::queue(Peer& peer, Frame frame) {
  ++unsent_;
  peer.wire.send(std::move(frame), [this](const Frame& written) { sent(written); });
}

void Pairs::push(Peer& peer) {
  try {
    peer.wire.push([this](const Frame& written) { sent(written); });
    feed(peer);
    note_room(peer);
  } catch (const Error&) {
    lose_by_error(peer);
  }
}

/// Goes on with messages that were asked for, a part of each in turn.
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
    queue(peer, std::move(part));
  }
  note_streaming();
}

void Pairs::sent(const Frame& frame) {
  --unsent_;
  if (frame.owner == nullptr) return;
  --open_;
  events_.done(frame.owner, {}, std::nullopt);
}

void Pairs::note_room(Peer& peer) {
  const bool open = peer.channel != nullptr && peer.wire.stream() != nullptr;
  const bool clogged = open && !peer.channel->out().idle();
  if (clogged == peer.clogged) return;
  peer.clogged = clogged;
  note_streaming();
}

void Pairs::note_streaming() {
  if (!connected_) return;
  streaming_ = std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    const Peer& peer = *entry.second;
    return peer.place < 0 && (!peer.expected.empty() || !peer.asked.empty() || peer.clogged);
  });
}

/// Eager messages of so many bytes each are kept no longer.
void Pairs::give_back(Peer& peer, uint64_t bytes) {
  peer.owed += cost_of(bytes);
  if (peer.owed < kGiveBack) return;
  const uint64_t owed = std::exchange(peer.owed, 0);
  peer.outstanding -= owed;
  note(peer, Note::kCredit, 0, owed);
}

// ---- What comes in ----

bool Pairs::look_at_rings() {
  bool moved = false;
  auto* flags = endpoint_.region->pair_flags(endpoint_.place);
  for (size_t word = 0; word < more_.size(); ++word) {
    if (flags[word].load(std::memory_order_relaxed) == 0 && more_[word] == 0) continue;
    uint64_t news = flags[word].exchange(0) | std::exchange(more_[word], 0);
    moved |= news != 0;
    for (; news != 0; news &= news - 1) {
      const size_t place = word * 64 + static_cast<size_t>(std::countr_zero(news));
      if (place >= local_.size() || static_cast<int>(place) == endpoint_.place) continue;
      if (local_[place] == nullptr) {
        const int here = hosts_.host_of(endpoint_.rank);
        make_peer(hosts_.ranks_on(here)[place]);
      }
      Peer& peer = *local_[place];
      if (!read(peer)) more_[word] |= uint64_t{1} << (place % 64);
      push(peer);
    }
  }
  return moved;
}

bool Pairs::look_at_channels() {
  if (news_.load(std::memory_order_relaxed)) news_.store(false);
  if (ready_.empty()) ready_ = channels_->network().ready();
  std::vector<Peer*> readable = std::exchange(unread_, {});
  for (const Channel* channel : std::exchange(ready_, {})) {
    Peer* const peer = peers_.at(channel->rank()).get();
    const bool listed = std::find(readable.begin(), readable.end(), peer) != readable.end();
    if (!listed) readable.push_back(peer);
  }
  for (Peer* peer : readable) {
    if (peer->clogged) push(*peer);
    // What was read ahead is nothing that the network would tell of again.
    if (peer->wire.stream() != nullptr && !read(*peer)) unread_.push_back(peer);
  }
  if (readable.empty()) check_patience();
  return !readable.empty();
}

/// False if there may be more to read.
bool Pairs::read(Peer& peer) {
  try {
    return peer.wire.pull(
        kStep, [&](const Header& header) { return begin(peer, header); },
        [&](const Header& header) { end(peer, header); });
  } catch (const Error&) {
    lose_by_error(peer);
    return true;
  }
}

/// Deals with what reading or writing has thrown.
void Pairs::lose_by_error(Peer& peer) {
  try {
    throw;
  } catch (const PeerLost&) {
    throw;
  } catch (const Broken&) {
    lose_channel(peer);
  } catch (const Altered& altered) {
    lose(peer.rank, altered.what());
  } catch (const Error& lie) {
    lose(peer.rank, std::string("it sent what no rank sends: ") + lie.what());
  }
}

/// Says where the body goes.
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
  peer.receiving = matching_.take_posted(peer.rank, header.communicator, header.tag);
  if (peer.receiving != nullptr) {
    if (has_room(*peer.receiving, peer.rank, header.bytes)) {
      return {peer.receiving->data, header.bytes};
    }
    peer.receiving.reset();
    return {static_cast<std::byte*>(nullptr), header.bytes};
  }
  peer.arriving =
      std::make_unique<Arrived>(Arrived{peer.rank, header.communicator, header.tag, header.bytes});
  peer.arriving->data = std::make_unique_for_overwrite<std::byte[]>(header.bytes);
  return {peer.arriving->data.get(), header.bytes};
}

std::span<std::byte> Pairs::begin_part(Peer& peer, const Header& header) {
  const auto found =
      std::find_if(peer.expected.begin(), peer.expected.end(),
                   [&](const auto& incoming) { return incoming->key == header.key; });
  const bool known = found != peer.expected.end();
  if (!known && !ended_) throw Lie("a part of a message that was not asked for");
  if (header.bytes > kPart) throw Lie("a part that is too long");
  if (!known) return {static_cast<std::byte*>(nullptr), header.bytes};
  Incoming& incoming = **found;
  if (header.bytes == 0 || header.bytes > incoming.bytes - incoming.got) {
    throw Lie("a part that its message does not have");
  }
  peer.part = &incoming;
  return {incoming.to + incoming.got, header.bytes};
}

/// The body is there.
void Pairs::end(Peer& peer, const Header& header) {
  switch (header.note) {
    case Note::kEager:
      return end_eager(peer, header);
    case Note::kPart:
      if (peer.part != nullptr) peer.part->got += header.bytes;
      return end_part(peer);
    case Note::kOffer:
    case Note::kShow:
      return take_offer(peer, header);
    case Note::kPulled:
    case Note::kAsk:
      return take_answer(peer, header);
    case Note::kCredit:
      return take_credit(peer, header);
    case Note::kBye:
      if (peer.place < 0) channels_->excuse(peer.rank);
      return;
  }
  throw Lie("a message of an unknown kind");
}

void Pairs::end_eager(Peer& peer, const Header& header) {
  if (peer.arriving != nullptr) {
    // It may have come to be wanted meanwhile.
    std::unique_ptr<Arrived> message = std::move(peer.arriving);
    const auto receive = matching_.take_posted(peer.rank, header.communicator, header.tag);
    if (receive == nullptr && !is_over(header.communicator)) {
      return matching_.keep(std::move(message));
    }
    if (receive != nullptr) deliver(*receive, peer.rank, header.bytes, message->data.get());
  } else if (peer.receiving != nullptr) {
    const std::unique_ptr<Transfer> receive = std::move(peer.receiving);
    finish(*receive, {peer.rank, header.tag, header.bytes});
  }
  give_back(peer, header.bytes);
}

void Pairs::end_part(Peer& peer) {
  Incoming* const part = std::exchange(peer.part, nullptr);
  if (part == nullptr || part->got < part->bytes) return;
  const auto found = std::find_if(peer.expected.begin(), peer.expected.end(),
                                  [&](const auto& incoming) { return incoming.get() == part; });
  const std::unique_ptr<Incoming> incoming = std::move(*found);
  peer.expected.erase(found);
  finish(*incoming->receive, {peer.rank, incoming->receive->tag, incoming->bytes});
  note_streaming();
}

bool Pairs::is_in_heap(const Peer& peer, const Header& header) const {
  if (peer.place < 0 || endpoint_.heaps == nullptr) return false;
  const uint64_t room = endpoint_.heaps->bytes(peer.place);
  return header.bytes <= room && header.address <= room - header.bytes;
}

void Pairs::take_offer(Peer& peer, const Header& header) {
  if (header.bytes > kMostBytes) throw Lie("a message of an impossible size");
  if (header.tag < 0) throw Lie("a negative tag");
  const bool shown = header.note == Note::kShow;
  if (shown && !is_in_heap(peer, header)) throw Lie("a message outside its shared heap");
  if (ended_) return;
  if (is_over(header.communicator)) return note(peer, Note::kPulled, header.key);
  auto offer =
      std::make_unique<Arrived>(Arrived{peer.rank, header.communicator, header.tag, header.bytes});
  offer->offered = true;
  offer->key = header.key;
  offer->shown = shown;
  offer->address = header.address;
  auto receive = matching_.take_posted(peer.rank, header.communicator, header.tag);
  if (receive == nullptr) return matching_.keep(std::move(offer));
  fetch(std::move(receive), *offer);
}

void Pairs::take_answer(Peer& peer, const Header& header) {
  if (ended_) return;
  auto node = peer.offered.extract(header.key);
  if (node.empty()) throw Lie("an answer to an offer that was not made");
  if (header.note == Note::kPulled) return finish(node.mapped());
  peer.asked.push_back({std::move(node.mapped()), header.key});
  feed(peer);
  note_room(peer);
}

void Pairs::take_credit(Peer& peer, const Header& header) {
  if (header.bytes > kCredit - peer.credit) throw Lie("more credit than there is");
  peer.credit += header.bytes;
}

}  // namespace sirtaki
