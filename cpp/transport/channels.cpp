#include "transport/channels.h"

#include <utility>

#include "base/error.h"

namespace sirtaki {

void Channels::open(std::vector<int> ranks) {
  std::erase_if(ranks, [&](int rank) { return has(rank) || opening_.contains(rank); });
  if (ranks.empty()) return;
  opening_.insert(ranks.begin(), ranks.end());
  network_->open(std::move(ranks));
}

std::vector<Channel*> Channels::opened() {
  std::vector<Channel*> result;
  if (!opening()) return result;
  for (std::unique_ptr<Channel>& channel : network_->opened()) {
    const int rank = channel->rank();
    if (channel->broken()) end_world(rank, "it cannot be opened: " + channel->failure());
    opening_.erase(rank);
    result.push_back((channels_[rank] = std::move(channel)).get());
  }
  return result;
}

void Channels::lose(const Channel& channel) { lose(channel.rank(), channel.failure()); }

void Channels::lose(int rank, const std::string& why) {
  if (broken_ || excused_.contains(rank)) return;
  broken_ = {rank, rank_, why};
  settled_ns_ = network_->now() + kSettleNs;
}

void Channels::settle() {
  if (!broken_) return;
  doorbell_.check_abort();
  if (network_->now() < settled_ns_) return;
  const std::string known = network_->why_broken(broken_->rank);
  end_world(broken_->rank, known.empty() ? broken_->reason : known);
}

void Channels::check_patience() {
  settle();
  const int64_t now = network_->now();
  if (now < look_at_ns_) return;
  look_at_ns_ = now + kLookAgainNs;
  for (const auto& [rank, channel] : channels_) {
    if (!channel->broken() && channel->is_silent(silent_ns_)) {
      lose(rank, "no answer from the other host");
    }
  }
}

void Channels::drop() {
  network_->give_up();
  opening_.clear();
  broken_.reset();
  if (doorbell_.aborted()) {
    for (const auto& [rank, channel] : channels_) channel->abandon();
    return;
  }
  for (const auto& [rank, channel] : channels_) channel->close();
  channels_.clear();
}

}  // namespace sirtaki
