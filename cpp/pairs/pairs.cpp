#include "pairs/pairs.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace sirtaki {

Pairs::Pairs(Endpoint& endpoint, const HostMap& hosts, const MakeNetwork& make_network,
             bool single_copy, Events events)
    : endpoint_(endpoint),
      hosts_(hosts),
      events_(std::move(events)),
      local_(static_cast<size_t>(endpoint.region->ranks())),
      more_(endpoint.region->pair_flag_words()) {
  if (single_copy) single_copy_.emplace(endpoint.region, endpoint.place);
  if (hosts.hosts() == 1 || !make_network) return;
  // Behind the lanes of all process sets.
  const NetworkUse use{.first_number = Region::kMaxSets * endpoint.sockets_per_peer,
                       .news = &news_};
  channels_ = std::make_unique<Channels>(endpoint.rank, endpoint.doorbell,
                                         make_network(endpoint.doorbell, use), endpoint.silent_ns);
}

Pairs::~Pairs() = default;

// ---- What the callers want ----

void Pairs::add(Transfer transfer) {
  if (!has_posted()) return start(std::move(transfer));
  post(std::move(transfer));  // what was posted before it comes first
  take_posted();
}

void Pairs::post(Transfer transfer) {
  const std::lock_guard lock(posted_mutex_);
  posted_.push_back(std::move(transfer));
  has_posted_.store(true);
}

bool Pairs::take_posted() {
  if (has_posted()) {
    const std::lock_guard lock(posted_mutex_);
    std::move(posted_.begin(), posted_.end(), std::back_inserter(taken_));
    posted_.clear();
    has_posted_.store(false);
  }
  const bool moved = !taken_.empty();
  while (!taken_.empty()) {
    Transfer next = std::move(taken_.front());
    taken_.pop_front();
    start(std::move(next));
  }
  return moved;
}

void Pairs::start(Transfer transfer) {
  if (transfer.withdraws) return withdraw(transfer.owner);
  ++open_;
  const int32_t set = transfer.communicator;
  transfer.communicator = communicator_of(set, removed(set));
  transfer.sends ? start_send(std::move(transfer)) : start_receive(std::move(transfer));
}

void Pairs::start_send(Transfer send) {
  if (ended_) return finish(send, {}, ended_);
  if (send.peer == endpoint_.rank) return send_to_self(std::move(send));
  Peer& peer = peer_of(send.peer);
  Header header{Note::kEager, send.communicator, send.tag, send.bytes, 0, 0};
  if (send.bytes <= kEager && cost_of(send.bytes) <= peer.credit) {
    peer.credit -= cost_of(send.bytes);
    return write(peer, {header, {send.data, send.bytes}, std::move(send.owner)});
  }
  header.note = Note::kOffer;
  header.key = next_key_++;
  header.address = reinterpret_cast<uint64_t>(send.data);
  if (const auto shared = shared_offset(peer, send)) {
    header.note = Note::kShow;
    header.address = *shared;
  }
  peer.offered.emplace(header.key, std::move(send));
  write(peer, {header});
}

/// Where in the own shared heap the peer can read it; none: nowhere.
std::optional<uint64_t> Pairs::shared_offset(const Peer& peer, const Transfer& send) const {
  if (peer.place < 0 || endpoint_.heaps == nullptr) return std::nullopt;
  return endpoint_.heaps->offset_of(send.data, send.bytes);
}

/// A message to oneself that nobody waits for is copied, whatever its size: no thread could wait
/// for its receiver.
void Pairs::send_to_self(Transfer send) {
  const auto receive = matching_.take_posted(send.peer, send.communicator, send.tag);
  if (receive != nullptr) {
    deliver(*receive, send.peer, send.bytes, send.data);
  } else {
    auto kept =
        std::make_unique<Arrived>(Arrived{send.peer, send.communicator, send.tag, send.bytes});
    kept->data = std::make_unique_for_overwrite<std::byte[]>(send.bytes);
    if (send.bytes > 0) std::memcpy(kept->data.get(), send.data, send.bytes);
    matching_.keep(std::move(kept));
  }
  finish(send);
}

void Pairs::start_receive(Transfer receive) {
  if (ended_ && !lost_) look();  // what has come can still be received
  std::unique_ptr<Arrived> message = matching_.take_arrived(receive);
  if (ended_ && (message == nullptr || message->offered)) return finish(receive, {}, ended_);
  if (message == nullptr) {
    return matching_.post(std::make_unique<Transfer>(std::move(receive)));
  }
  if (message->offered) return fetch(std::make_unique<Transfer>(std::move(receive)), *message);
  deliver(receive, message->source, message->bytes, message->data.get());
  if (message->source != endpoint_.rank) {
    give_back(peer_of(message->source), message->bytes);
  }
}

void Pairs::withdraw(const std::shared_ptr<void>& owner) {
  const auto receive = matching_.take_posted(owner);
  if (receive == nullptr) return;  // its message has come
  finish(*receive, {}, invalid("given up by its caller"));
}

void Pairs::finish(const Transfer& transfer, const Message& message,
                   const std::optional<Error>& error) {
  --open_;
  if (!error) return events_.done(transfer.owner, message, error);
  events_.done(transfer.owner, message,
               Error(error->code, describe(transfer) + ": " + error->what()));
}

/// False if the receive has failed: there is no room for such a message, which is dropped.
bool Pairs::has_room(Transfer& receive, int source, uint64_t bytes) {
  const std::string message = "the message of rank " + std::to_string(source) + " has " +
                              std::to_string(bytes) + " bytes, ";
  const Message got{source, receive.tag, bytes};
  if (!receive.room) {
    if (bytes <= receive.bytes) return true;
    finish(receive, got,
           Error(ErrorCode::kMismatch, message + "more than the " + std::to_string(receive.bytes) +
                                           " that there is room for; it is dropped"));
    return false;
  }
  std::string why = "there is none";
  try {
    receive.data = receive.room(bytes);
    if (receive.data != nullptr || bytes == 0) return true;
  } catch (const std::exception& error) {
    why = error.what();
  }
  finish(receive, got,
         invalid(message + "for which the caller has no memory (" + why + "); it is dropped"));
  return false;
}

void Pairs::deliver(Transfer& receive, int source, uint64_t bytes, const std::byte* from) {
  if (!has_room(receive, source, bytes)) return;
  if (bytes > 0) std::memcpy(receive.data, from, bytes);
  finish(receive, {source, receive.tag, bytes});
}

/// Gets what was offered.
void Pairs::fetch(std::unique_ptr<Transfer> receive, const Arrived& offer) {
  Peer& peer = peer_of(offer.source);
  if (!has_room(*receive, offer.source, offer.bytes)) return note(peer, Note::kPulled, offer.key);
  if (offer.bytes == 0) {
    finish(*receive, {offer.source, receive->tag, 0});
    return note(peer, Note::kPulled, offer.key);
  }
  std::byte* to = receive->data;
  auto incoming = std::make_unique<Incoming>(Incoming{std::move(receive), offer.source, offer.key,
                                                      offer.shown, offer.address, offer.bytes, to});
  if (peer.place < 0 || (!single_copy_ && !offer.shown)) return ask(std::move(incoming));
  pulls_.push_back(std::move(incoming));
}

void Pairs::ask(std::unique_ptr<Incoming> incoming) {
  Peer& peer = peer_of(incoming->source);
  const uint64_t key = incoming->key;
  incoming->got = 0;
  peer.expected.push_back(std::move(incoming));
  note(peer, Note::kAsk, key);
  note_streaming();
}

bool Pairs::advance_pulls() {
  const bool moved = !pulls_.empty();
  for (size_t i = 0; i < pulls_.size();) {
    if (pull(*pulls_[i])) {
      pulls_.erase(pulls_.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (pulls_[i]->got == 0) {  // it cannot be read
      std::unique_ptr<Incoming> refused = std::move(pulls_[i]);
      pulls_.erase(pulls_.begin() + static_cast<std::ptrdiff_t>(i));
      ask(std::move(refused));
    } else {
      ++i;
    }
  }
  return moved;
}

/// Copies a step of a message out of the sender's memory; true when it is all there. Of a message
/// that cannot be copied nothing is got.
bool Pairs::pull(Incoming& incoming) {
  Peer& peer = peer_of(incoming.source);
  const size_t got = copy(peer, incoming);
  incoming.got = got == 0 ? 0 : incoming.got + got;
  if (incoming.got < incoming.bytes) return false;
  // Who leaves says so before its memory is used for something else.
  if (endpoint_.region->pair_block(peer.place).closed.load(std::memory_order_acquire) != 0) {
    incoming.got = 0;
    return false;
  }
  if (incoming.shown) endpoint_.heaps->count(incoming.bytes);
  finish(*incoming.receive, {incoming.source, incoming.receive->tag, incoming.bytes});
  note(peer, Note::kPulled, incoming.key);
  return true;
}

/// Copies the next step; how much that was.
size_t Pairs::copy(const Peer& peer, const Incoming& incoming) {
  const size_t wanted = std::min<uint64_t>(kCopy, incoming.bytes - incoming.got);
  const uint64_t at = incoming.address + incoming.got;
  std::byte* const to = incoming.to + incoming.got;
  if (!incoming.shown) return single_copy_->copy(peer.place, at, to, wanted);
  const std::byte* heap = endpoint_.heaps->base(peer.place);
  if (heap == nullptr) return 0;
  std::memcpy(to, heap + at, wanted);
  return wanted;
}

// ---- Making progress ----

bool Pairs::advance() {
  if (lost_) return take_posted();
  bool moved = take_posted();
  moved |= look();
  moved |= advance_pulls();
  return moved;
}

/// At what peers have said; begins nothing, so whoever begins a transfer may call it.
bool Pairs::look() {
  bool moved = look_at_rings();
  moved |= take_opened();
  if (connected_) moved |= look_at_channels();
  return moved;
}

bool Pairs::is_ready() {
  if (has_posted() || has_news() || !pulls_.empty() || has_more()) return true;
  if (take_opened()) return true;
  constexpr uint32_t kSeldom = 16;  // asking the kernel takes longer than looking into memory
  if (!connected_ || (!streaming_ && ++looks_ % kSeldom != 0)) return false;
  ready_ = channels_->network().ready();
  return !ready_.empty();
}

bool Pairs::has_news() const {
  if (news_.load()) return true;
  const auto* flags = endpoint_.region->pair_flags(endpoint_.place);
  for (size_t i = 0; i < more_.size(); ++i) {
    if (flags[i].load() != 0) return true;
  }
  return false;
}

void Pairs::prepare(Sleep& sleep) {
  if (!pending()) return;
  sleep.messages |= kPair;
  if (!connected_) return;
  streaming_ ? channels_->network().prepare(sleep) : channels_->network().guard();
}

// ---- The end ----

void Pairs::forget(int32_t set) {
  take_posted();  // what was asked for before is of the set that goes
  const int32_t communicator = communicator_of(set, removed_[set]++);
  const Error error = invalid("the process set was removed");
  for (const auto& receive : matching_.drop_posted(communicator)) finish(*receive, {}, error);
  for (const auto& message : matching_.drop_arrived(communicator)) {
    if (message->offered) {
      note(peer_of(message->source), Note::kPulled, message->key);
    } else if (message->source != endpoint_.rank) {
      give_back(peer_of(message->source), message->bytes);
    }
  }
}

void Pairs::end(const Error& error) {
  if (ended_) return;
  advance();
  for (const auto& [rank, peer] : peers_) {
    if (peer->place < 0 && peer->wire.idle()) note(*peer, Note::kBye, 0);
  }
  fail_all(error);
}

void Pairs::drop(const Error& error) {
  lost_ = true;
  if (!ended_) fail_all(error);
  take_posted();
}

void Pairs::fail_all(const Error& error) {
  ended_ = error;
  // Before anybody is told that the memory is theirs again.
  endpoint_.region->pair_block(endpoint_.place).closed.store(1);
  const auto fail = [&](const Transfer& transfer) { finish(transfer, {}, ended_); };
  for (const auto& receive : matching_.drop_posted()) fail(*receive);
  for (const auto& incoming : pulls_) fail(*incoming->receive);
  pulls_.clear();
  for (const auto& [rank, peer] : peers_) {
    for (const auto& incoming : peer->expected) fail(*incoming->receive);
    if (peer->receiving != nullptr) fail(*peer->receiving);
    for (const auto& [key, send] : peer->offered) fail(send);
    for (const Asked& asked : peer->asked) fail(asked.send);
    for (const Frame& frame : peer->wire.drop()) {
      --unsent_;
      if (frame.owner == nullptr) continue;
      fail({true, rank, frame.header.communicator, frame.header.tag, nullptr, 0, {}, frame.owner});
    }
    peer->wire.skip_body(peer->arriving == nullptr);  // its memory is no longer ours
    peer->part = nullptr;
    peer->expected.clear();
    peer->receiving.reset();
    peer->offered.clear();
    peer->asked.clear();
  }
  streaming_ = false;
}

void Pairs::stop() {
  lost_ = true;
  connected_ = false;
  ready_ = {};
  unread_.clear();
  peers_.clear();
  local_.assign(local_.size(), nullptr);
  channels_.reset();
}

const Transfer* Pairs::pending_of(const void* owner) const {
  const auto fits = [&](const Transfer& transfer) {
    return owner == nullptr || transfer.owner.get() == owner;
  };
  if (const Transfer* receive = matching_.find(fits)) return receive;
  for (const auto& pull : pulls_) {
    if (fits(*pull->receive)) return pull->receive.get();
  }
  for (const auto& [rank, peer] : peers_) {
    for (const auto& incoming : peer->expected) {
      if (fits(*incoming->receive)) return incoming->receive.get();
    }
    for (const auto& [key, send] : peer->offered) {
      if (fits(send)) return &send;
    }
    for (const Asked& asked : peer->asked) {
      if (fits(asked.send)) return &asked.send;
    }
  }
  return nullptr;
}

}  // namespace sirtaki
