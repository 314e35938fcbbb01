#include "transport/group.h"

#include <algorithm>

namespace sirtaki {

Group::Group(Endpoint& endpoint, const HostMap& hosts, std::vector<int> world_ranks,
             Counters* counters, bool indexed_by_place)
    : endpoint_(endpoint), ranks_(std::move(world_ranks)) {
  const auto self = std::find(ranks_.begin(), ranks_.end(), endpoint.rank);
  rank_ = static_cast<int>(self - ranks_.begin());
  for (size_t m = 0; m < ranks_.size(); ++m) {
    const int place = hosts.place_of(ranks_[m]);
    places_.push_back(place);
    counters_.push_back(counters + (indexed_by_place ? static_cast<size_t>(place) : m));
    slots_.push_back(endpoint.region->slots(place));
    if (place != endpoint.place) peers_.push_back(place);
  }
  // Counters go on where an earlier group with the same memory stopped; all its members agree.
  Counters& own = *counters_[static_cast<size_t>(rank_)];
  published_ = own.published.load(std::memory_order_relaxed);
  consumed_ = own.consumed.load(std::memory_order_relaxed);
  collective_ = own.drained.load(std::memory_order_relaxed);
}

Group::~Group() {
  for (SlotUse& use : endpoint_.uses) {
    if (use.group == this) use = {};
  }
}

void Group::acquire(SlotUse& use) {
  if (use.group != nullptr) use.group->await_drained(use.collective);
  ++collective_;
  use = {this, collective_};
  published_before_ = published_;
  consumed_before_ = consumed_;
}

int Group::begin_small() {
  const int which = static_cast<int>(collective_ % 2);
  acquire(endpoint_.uses[static_cast<size_t>(which)]);
  return which;
}

void Group::begin_stream() { acquire(endpoint_.uses[2]); }

void Group::end() {
  counters_[static_cast<size_t>(rank_)]->drained.store(collective_, std::memory_order_release);
  tell_members();
}

void Group::publish() {
  counters_[static_cast<size_t>(rank_)]->published.store(++published_, std::memory_order_release);
  tell_members();
}

void Group::consume() {
  counters_[static_cast<size_t>(rank_)]->consumed.store(++consumed_, std::memory_order_release);
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

void Group::tell_members() const { endpoint_.doorbell.ring(peers_, kData); }

void Group::await_published(int member, uint32_t count) const {
  const auto& counter = counters_[static_cast<size_t>(member)]->published;
  endpoint_.wait_for(places_[static_cast<size_t>(member)],
                     [&] { return reached(counter, published_before_ + count); });
}

void Group::await_consumed(int member, uint32_t count) const {
  const auto& counter = counters_[static_cast<size_t>(member)]->consumed;
  endpoint_.wait_for(places_[static_cast<size_t>(member)],
                     [&] { return reached(counter, consumed_before_ + count); });
}

void Group::await_consumed(uint32_t count) const {
  for (int m = 0; m < size(); ++m) {
    if (m != rank_) await_consumed(m, count);
  }
}

void Group::await_drained(uint64_t collective) const {
  for (int m = 0; m < size(); ++m) {
    if (m == rank_) continue;
    const auto& counter = counters_[static_cast<size_t>(m)]->drained;
    endpoint_.wait_for(places_[static_cast<size_t>(m)],
                       [&] { return reached(counter, collective); });
  }
}

}  // namespace sirtaki
