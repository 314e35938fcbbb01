#include "engine/execution/runner.h"

#include <algorithm>
#include <utility>

namespace sirtaki {

bool Runner::advance() {
  bool moved = begin_some();
  for (size_t i = 0; i < flights_.size();) {
    Flight& flight = *flights_[i];
    if (!flight.work->is_ready()) {
      ++i;
      continue;
    }
    moved = true;
    go_on(flight) ? remove(i) : static_cast<void>(++i);
  }
  return moved;
}

bool Runner::is_ready() {
  if (!queue_.empty() && !held_up_) return true;
  return std::any_of(flights_.begin(), flights_.end(),
                     [](const auto& flight) { return flight->work->is_ready(); });
}

void Runner::prepare(Sleep& sleep) const {
  for (const auto& flight : flights_) flight->work->prepare(sleep);
}

std::vector<Item> Runner::drop() {
  std::vector<Item> items;
  const auto take = [&](std::vector<Item>& from) {
    std::move(from.begin(), from.end(), std::back_inserter(items));
  };
  for (const auto& flight : flights_) {
    flight->work.reset();  // before the memory that it is about
    take(flight->items);
  }
  for (Batch& batch : queue_) take(batch.items);
  flights_.clear();
  queue_.clear();
  held_up_ = false;
  return items;
}

/// Each in its turn, as soon as its track is free.
bool Runner::begin_some() {
  if (queue_.empty() || held_up_) return false;
  bool begun = false;
  std::vector<int> held;  // tracks for which an earlier batch waits
  for (auto it = queue_.begin(); it != queue_.end();) {
    const int track = executor_.track_of(*it);
    if (!may_begin(track, held)) {
      held.push_back(track);
      ++it;
      continue;
    }
    Batch batch = std::move(*it);
    it = queue_.erase(it);
    begin(std::move(batch), track);
    begun = true;
  }
  held_up_ = !queue_.empty();
  return begun;
}

/// What concerns all tracks waits for everything before it and holds up everything behind it.
bool Runner::may_begin(int track, const std::vector<int>& held) const {
  if (track == Executor::kAllTracks) return flights_.empty() && held.empty();
  const auto blocks = [&](int other) { return other == track || other == Executor::kAllTracks; };
  return std::none_of(held.begin(), held.end(), blocks) &&
         std::none_of(flights_.begin(), flights_.end(),
                      [&](const auto& flight) { return blocks(flight->track); });
}

void Runner::begin(Batch batch, int track) {
  if (batch.last) return events_.closed();
  flights_.push_back(std::make_unique<Flight>(std::move(batch), track));
  Flight& flight = *flights_.back();
  events_.begun(flight);
  try {
    executor_.start(flight);
  } catch (const Error& error) {
    fail(flight, error);
    flights_.pop_back();
  }
}

/// True when it is done, well or not.
bool Runner::go_on(Flight& flight) {
  if (flight.waits_since_ns != 0) events_.goes_on(flight);
  try {
    if (!flight.work->advance()) return false;
  } catch (const Error& error) {
    fail(flight, error);
    return true;
  }
  flight.work.reset();
  executor_.conclude(flight);
  events_.done(flight, std::nullopt);
  return true;
}

/// The world goes on after what all members have found. What one alone has seen ends it, for the
/// others wait for this rank's part.
void Runner::fail(Flight& flight, const Error& error) {
  if (error.scope != Scope::kAllMembers) throw;
  flight.work.reset();
  events_.done(
      flight,
      Error(error.code, flight.describe() + " has failed", error.scope).because(error.what()));
}

void Runner::remove(size_t index) {
  flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(index));
  held_up_ = false;
}

}  // namespace sirtaki
