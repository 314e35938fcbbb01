#include "pairs/wires.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "pairs/pairs.h"

namespace sirtaki {

Wires::Wires(Pairs& pairs, Endpoint& endpoint, const HostMap& hosts,
             const MakeNetwork& make_network)
    : pairs_(pairs),
      endpoint_(endpoint),
      hosts_(hosts),
      local_(static_cast<size_t>(endpoint.region->ranks())),
      more_(endpoint.region->pair_flag_words()) {
  if (hosts.hosts() == 1 || !make_network) return;
  // After the numbers of all process sets.
  const NetworkUse use{.first_number = Region::kMaxSets, .news = &news_};
  channels_ = std::make_unique<Channels>(endpoint.rank, endpoint.doorbell,
                                         make_network(endpoint.doorbell, use), endpoint.silent_ns);
}

// ---- Peers ----

Peer& Wires::peer_of(int rank) {
  const auto found = peers_.find(rank);
  if (found != peers_.end()) return *found->second;
  Peer& peer = make_peer(rank);
  if (!peer.is_here()) pairs_.listener_.invite(rank);
  return peer;
}

Peer& Wires::make_peer(int rank) {
  const bool here = is_here(rank);
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

void Wires::meet(int rank) {
  if (peers_.count(rank) == 0 && !ended_) make_peer(rank);
}

bool Wires::take_opened() {
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

// ---- Sending ----

void Wires::write(Peer& peer, Frame frame) {
  if (ended_) return;
  guard(peer, [&] {
    queue(peer, std::move(frame));
    note_room(peer);
  });
}

void Wires::queue(Peer& peer, Frame frame) {
  ++unsent_;
  peer.wire.send(std::move(frame), [this](const std::shared_ptr<void>& owner) { sent(owner); });
}

void Wires::push(Peer& peer) {
  guard(peer, [&] {
    peer.wire.push([this](const std::shared_ptr<void>& owner) { sent(owner); });
    pairs_.feed(peer);
    note_room(peer);
  });
}

void Wires::sent(const std::shared_ptr<void>& owner) {
  --unsent_;
  if (owner != nullptr) pairs_.sent(owner);
}

void Wires::note_room(Peer& peer) {
  const bool open = peer.channel != nullptr && peer.wire.stream() != nullptr;
  const bool clogged = open && !peer.channel->out().idle();
  if (clogged == peer.clogged) return;
  peer.clogged = clogged;
  note_streaming();
}

void Wires::note_streaming() {
  if (!connected_) return;
  streaming_ = !ended_ && std::ranges::any_of(peers_, [](const auto& entry) {
    const Peer& peer = *entry.second;
    return !peer.is_here() && (!peer.expected.empty() || !peer.asked.empty() || peer.clogged);
  });
}

// ---- Receiving ----

bool Wires::look() {
  bool moved = look_at_rings();
  moved |= take_opened();
  if (connected_) moved |= look_at_channels();
  return moved;
}

bool Wires::look_at_rings() {
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

bool Wires::look_at_channels() {
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
    // The network reports bytes that were read ahead only once.
    if (peer->wire.stream() != nullptr && !read(*peer)) unread_.push_back(peer);
  }
  if (readable.empty()) check_patience();
  return !readable.empty();
}

/// False if there may be more to read.
bool Wires::read(Peer& peer) {
  constexpr size_t kStep = 1 << 20;  // bytes at a time
  bool all = true;
  guard(peer, [&] {
    all = peer.wire.pull(
        kStep, [&](const Header& header) { return pairs_.begin(peer, header); },
        [&](const Header& header) { pairs_.end(peer, header); });
  });
  return all;
}

bool Wires::has_more() const {
  return !unread_.empty() || std::ranges::any_of(more_, [](uint64_t word) { return word != 0; });
}

bool Wires::has_news() const {
  if (news_.load()) return true;
  const auto* flags = endpoint_.region->pair_flags(endpoint_.place);
  for (size_t i = 0; i < more_.size(); ++i) {
    if (flags[i].load() != 0) return true;
  }
  return false;
}

bool Wires::is_ready() {
  if (has_news() || has_more() || take_opened()) return true;
  constexpr uint32_t kSeldom = 16;  // asking the kernel takes longer than reading memory
  if (!connected_ || (!streaming_ && ++looks_ % kSeldom != 0)) return false;
  ready_ = channels_->network().ready();
  return !ready_.empty();
}

void Wires::prepare(Sleep& sleep) {
  sleep.messages |= kPair;
  if (!connected_) return;
  streaming_ ? channels_->network().prepare(sleep) : channels_->network().guard();
}

// ---- Losses, and the end ----

/// Reads or writes, and handles its errors.
template <class Work>
void Wires::guard(Peer& peer, Work work) {
  try {
    work();
  } catch (const PeerLost&) {
    throw;
  } catch (const Broken&) {
    lose_channel(peer);
  } catch (const Altered& altered) {
    endpoint_.doorbell.end_world({peer.rank, endpoint_.rank, altered.what()});
  } catch (const Error& lie) {
    endpoint_.doorbell.end_world(
        {peer.rank, endpoint_.rank, std::string("it sent what no rank sends: ") + lie.what()});
  }
}

void Wires::lose_channel(Peer& peer) {
  peer.wire.close();
  peer.clogged = false;
  note_streaming();
  if (!ended_) channels_->lose(*peer.channel);
}

void Wires::end() {
  ended_ = true;
  streaming_ = false;
}

std::deque<Frame> Wires::drop(Peer& peer) {
  std::deque<Frame> dropped = peer.wire.drop();
  unsent_ -= static_cast<int64_t>(dropped.size());
  return dropped;
}

void Wires::stop() {
  connected_ = false;
  ready_ = {};
  unread_.clear();
  peers_.clear();
  local_.assign(local_.size(), nullptr);
  channels_.reset();
}

}  // namespace sirtaki
