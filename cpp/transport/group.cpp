#include "transport/group.h"

#include <algorithm>

namespace sirtaki {

Group::Group(Endpoint& endpoint, const HostMap& hosts, std::vector<int> world_ranks, int set)
    : endpoint_(endpoint), ranks_(std::move(world_ranks)), area_(Region::area_of_set(set)) {
  const auto self = std::find(ranks_.begin(), ranks_.end(), endpoint.rank);
  rank_ = static_cast<int>(self - ranks_.begin());
  Counters* counters = endpoint.region->set_counters(set);
  for (const int rank : ranks_) {
    const int place = hosts.place_of(rank);
    places_.push_back(place);
    counters_.push_back(counters + place);
    slots_.push_back(endpoint.region->slots(place, area_));
    if (place != endpoint.place) peers_.push_back(place);
  }
  const auto has_heap = [&](int place) { return endpoint.heaps->has(place); };
  if (endpoint.heaps != nullptr && std::all_of(places_.begin(), places_.end(), has_heap)) {
    heaps_ = endpoint.heaps;
  }
  // Counters continue from an earlier group with the same memory; all its members agree on this.
  Counters& own = *counters_[static_cast<size_t>(rank_)];
  published_ = own.published.load(std::memory_order_relaxed);
  consumed_ = own.consumed.load(std::memory_order_relaxed);
  collective_ = own.drained.load(std::memory_order_relaxed);
}

Group::~Group() {
  for (SlotUse& use : uses()) {
    if (use.group == this) use = {};
  }
}

void Group::acquire(SlotUse& use) {
  ++collective_;
  use = {this, collective_};
  published_before_ = published_;
  consumed_before_ = consumed_;
}

void Group::end() {
  counters_[static_cast<size_t>(rank_)]->drained.store(collective_);
  tell_members();
}

void Group::publish() {
  counters_[static_cast<size_t>(rank_)]->published.store(++published_);
  tell_members();
}

void Group::consume() {
  counters_[static_cast<size_t>(rank_)]->consumed.store(++consumed_);
  tell_members();
}

void Group::skip_published(uint32_t count) {
  published_ += count;
  counters_[static_cast<size_t>(rank_)]->published.store(published_, std::memory_order_release);
}

void Group::skip_consumed(uint32_t count) {
  consumed_ += count;
  counters_[static_cast<size_t>(rank_)]->consumed.store(consumed_, std::memory_order_release);
}

/// Describes the wait until `member` (negative: none any more) has counted this far.
Awaited Group::awaited(Counter counter, uint64_t count, int member) const {
  if (member < 0) return {};
  Awaited awaited{Phase::kLeave, ranks_[static_cast<size_t>(member)],
                  places_[static_cast<size_t>(member)]};
  if (counter == &Counters::drained) return awaited;
  const bool written = counter == &Counters::published;
  awaited.phase = written ? Phase::kWrite : Phase::kRead;
  awaited.chunk =
      static_cast<uint32_t>(count - (written ? published_before_ : consumed_before_) - 1);
  return awaited;
}

void Group::tell_members() const {
  for (const int peer : peers_) endpoint_.doorbell.ring(peer, kData);
}

}  // namespace sirtaki
