#include "pairs/pairs.h"

#include <cstring>
#include <iterator>
#include <utility>

namespace sirtaki {

Pairs::Pairs(Endpoint& endpoint, const HostMap& hosts, const MakeNetwork& make_network,
             bool single_copy, Listener& listener)
    : endpoint_(endpoint), listener_(listener), wires_(*this, endpoint, hosts, make_network) {
  if (single_copy) single_copy_.emplace(endpoint.region, endpoint.place);
}

// ---- Requests of callers ----

void Pairs::add(Transfer transfer) {
  if (!has_posted()) return start(transfer);
  post(std::move(transfer));  // after everything that was posted before it
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
    start(next);
  }
  return moved;
}

/// Moves from the transfer what it keeps.
void Pairs::start(Transfer& transfer) {
  if (transfer.withdraws) {
    const auto receive = matching_.take_posted(transfer.owner);  // null: its message has come
    if (receive != nullptr) finish(*receive, {}, invalid("given up by its caller"));
    return;
  }
  ++open_;
  transfer.communicator = communicators_.of(transfer.communicator);
  transfer.sends ? start_send(transfer) : start_receive(transfer);
}

void Pairs::start_send(Transfer& send) {
  if (ended_) return finish(send, {}, ended_);
  if (send.peer == endpoint_.rank) return send_to_self(send);
  Peer& peer = wires_.peer_of(send.peer);
  ++peer.sent;
  if (send.number != nullptr) *send.number = peer.sent;
  Header header{Note::kEager, send.communicator, send.tag, send.bytes, 0, 0};
  if (send.bytes <= kEager && cost_of(send.bytes) <= peer.credit) {
    peer.credit -= cost_of(send.bytes);
    return wires_.write(peer, {header, {send.data, send.bytes}, std::move(send.owner)});
  }
  header.note = Note::kOffer;
  header.key = next_key_++;
  header.address = reinterpret_cast<uint64_t>(send.data);
  if (peer.is_here() && endpoint_.heaps != nullptr) {
    if (const auto shared = endpoint_.heaps->offset_of(send.data, send.bytes)) {
      header.note = Note::kShow;
      header.address = *shared;
    }
  }
  peer.offered.emplace(header.key, std::move(send));
  wires_.write(peer, {header});
}

/// A message to this rank itself that no receive waits for is copied, whatever its size: no thread
/// could wait for its receiver.
void Pairs::send_to_self(const Transfer& send) {
  const auto receive = matching_.take_posted(send.peer, send.communicator, send.tag);
  if (receive != nullptr) {
    deliver(*receive, {send.peer, send.tag, send.bytes}, send.data);
  } else {
    const Header header{Note::kEager, send.communicator, send.tag, send.bytes, 0, 0};
    auto kept = std::make_unique<Arrived>(Arrived{header, send.peer});
    kept->data = std::make_unique_for_overwrite<std::byte[]>(send.bytes);
    if (send.bytes > 0) std::memcpy(kept->data.get(), send.data, send.bytes);
    matching_.keep(std::move(kept));
  }
  finish(send);
}

void Pairs::start_receive(Transfer& receive) {
  if (ended_ && !lost_) wires_.look();  // messages that have arrived can still be received
  std::unique_ptr<Arrived> message = matching_.take_arrived(receive);
  if (ended_ && (message == nullptr || message->offered())) return finish(receive, {}, ended_);
  if (message == nullptr) {
    return matching_.post(std::make_unique<Transfer>(std::move(receive)));
  }
  if (message->offered()) {
    return fetch(std::make_unique<Transfer>(std::move(receive)), std::move(*message));
  }
  deliver(receive, {message->source, receive.tag, message->bytes, message->number},
          message->data.get());
  give_back(message->source, message->bytes);
}

void Pairs::finish(const Transfer& transfer, const Message& message,
                   const std::optional<Error>& error) {
  --open_;
  if (!error) return listener_.end(transfer.owner, message, error);
  listener_.end(transfer.owner, message,
                Error(error->code, describe(transfer) + ": " + error->what()));
}

// ---- Making progress ----

bool Pairs::advance() {
  bool moved = take_posted();
  if (lost_) return moved;
  moved |= wires_.look();
  moved |= advance_pulls();
  return moved;
}

// ---- The end ----

void Pairs::forget(int32_t set) {
  take_posted();  // earlier requests belong to the set that is removed
  const int32_t communicator = communicators_.remove(set);
  const Error error = invalid("the process set was removed");
  for (const auto& receive : matching_.drop_posted(communicator)) finish(*receive, {}, error);
  for (const auto& message : matching_.drop_arrived(communicator)) {
    if (message->offered()) {
      wires_.note(wires_.peer_of(message->source), Note::kPulled, message->key);
    } else {
      give_back(message->source, message->bytes);
    }
  }
}

void Pairs::end(const Error& error) {
  if (ended_) return;
  advance();
  for (const auto& [rank, peer] : wires_.peers()) {
    if (!peer->is_here() && peer->wire.idle()) wires_.note(*peer, Note::kBye, 0);
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
  wires_.end();
  // Before any caller is told that it may reuse its memory.
  endpoint_.region->pair_block(endpoint_.place).closed.store(1);
  find_open([&](const Transfer& transfer) {
    finish(transfer, {}, ended_);
    return false;  // drops all of them
  });
  matching_.drop_posted();
  pulls_.clear();
  for (const auto& [rank, peer] : wires_.peers()) {
    for (const Frame& frame : wires_.drop(*peer)) {
      if (frame.owner == nullptr) continue;
      const Header& header = frame.header;
      finish({true, rank, header.communicator, header.tag, nullptr, 0, {}, frame.owner}, {},
             ended_);
    }
    peer->wire.skip_body(peer->arriving == nullptr);  // its memory belongs to the caller again
    peer->part = nullptr;
    peer->expected.clear();
    peer->receiving.reset();
    peer->offered.clear();
    peer->asked.clear();
  }
}

const Transfer* Pairs::pending_of(const void* owner) const {
  return find_open([owner](const Transfer& transfer) {
    return owner == nullptr || transfer.owner.get() == owner;
  });
}

/// The first unfinished transfer that `fits`, of those that do not go out at once.
template <class Fits>
const Transfer* Pairs::find_open(Fits fits) const {
  if (const Transfer* receive = matching_.find(fits)) return receive;
  for (const auto& pull : pulls_) {
    if (fits(*pull->receive)) return pull->receive.get();
  }
  for (const auto& [rank, peer] : wires_.peers()) {
    for (const auto& incoming : peer->expected) {
      if (fits(*incoming->receive)) return incoming->receive.get();
    }
    if (peer->receiving != nullptr && fits(*peer->receiving)) return peer->receiving.get();
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
