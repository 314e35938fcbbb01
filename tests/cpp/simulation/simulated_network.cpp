#include "simulation/simulated_network.h"

#include <utility>

namespace sirtaki::testing {

// ---- Channels ----

SimulatedChannel::SimulatedChannel(Fabric& fabric, std::shared_ptr<Connection> connection, int self,
                                   int peer, Live live)
    : Channel(peer, {}),
      fabric_(fabric),
      connection_(std::move(connection)),
      self_(self),
      live_(std::move(live)) {
  failure_ = connection_->broken;
  if (live_ != nullptr) live_->insert(this);
}

SimulatedChannel::~SimulatedChannel() {
  close();
  if (live_ != nullptr) live_->erase(this);
}

Ticket SimulatedChannel::send(std::span<const std::byte> from) {
  if (!from.empty()) sending_.push_back(from);
  return {&out_, out_.noted += from.size()};
}

Ticket SimulatedChannel::receive(std::span<std::byte> to) {
  if (!to.empty()) receiving_.push_back(to);
  return {&in_, in_.noted += to.size()};
}

/// Moves what it can of the first of the pieces.
template <class Pieces, class Move>
bool move_first(Pieces& pieces, Flow& flow, Move move) {
  if (pieces.empty()) return false;
  const size_t moved = move(pieces.front());
  flow.moved += moved;
  pieces.front() = pieces.front().subspan(moved);
  if (pieces.front().empty()) pieces.erase(pieces.begin());
  return moved > 0;
}

bool SimulatedChannel::flush() {
  if (broken() || !connection_->broken.empty()) {
    if (in_.idle()) failure_ = connection_->broken;
    return false;
  }
  const uint64_t before = out_.moved;
  while (move_first(sending_, out_,
                    [&](auto piece) { return fabric_.send(*connection_, self_, piece); })) {
  }
  return out_.moved > before;
}

bool SimulatedChannel::fetch() {
  if (broken() || in_.idle()) return false;
  const uint64_t before = in_.moved;
  while (move_first(receiving_, in_,
                    [&](auto piece) { return fabric_.take(*connection_, self_, piece); })) {
  }
  if (in_.moved == before && ended()) {
    failure_ = connection_->broken.empty() ? "it was closed at the other end" : connection_->broken;
  }
  return in_.moved > before;
}

bool SimulatedChannel::ended() const {
  const Pipe& pipe = connection_->to(self_);
  if (!pipe.arrived.empty()) return false;
  return !connection_->broken.empty() || (pipe.closed && pipe.on_way.empty());
}

bool SimulatedChannel::ready() const {
  if (broken()) return false;
  const Pipe& own = connection_->from(self_);
  return ended() || !connection_->to(self_).arrived.empty() ||
         (!out_.idle() && own.filled < Fabric::kWindow);
}

void SimulatedChannel::abandon() {
  sending_.clear();
  receiving_.clear();
  out_ = in_ = {};
}

bool SimulatedChannel::is_silent(int64_t limit_ns) {
  const int64_t since = connection_->from(self_).unheard_ns;
  return limit_ns > 0 && since != 0 && fabric_.now_ns() - since >= limit_ns;
}

// ---- Networks ----

void SimulatedNetwork::open(std::vector<int> ranks) {
  for (const int rank : ranks) fabric_.ask(rank_, rank, first_number_);
}

std::vector<std::unique_ptr<Channel>> SimulatedNetwork::opened() {
  std::vector<std::unique_ptr<Channel>> channels;
  for (auto& connection : fabric_.made(rank_, first_number_, 1)) {
    const int peer = connection->from(rank_).to;
    channels.push_back(
        std::make_unique<SimulatedChannel>(fabric_, std::move(connection), rank_, peer, channels_));
  }
  return channels;
}

std::span<Channel* const> SimulatedNetwork::ready() {
  ready_.clear();
  for (SimulatedChannel* channel : *channels_) {
    if (channel->ready()) ready_.push_back(channel);
  }
  // Not the order of addresses: a seed replays.
  std::ranges::sort(ready_, {}, &Channel::rank);
  return ready_;
}

}  // namespace sirtaki::testing
