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

/// Each in its turn, as soon as its lane is free.
bool Runner::begin_some() {
  if (queue_.empty() || held_up_) return false;
  bool begun = false;
  std::vector<int> held;  // lanes for which an earlier batch waits
  for (auto it = queue_.begin(); it != queue_.end();) {
    const int lane = executor_.lane_of(*it);
    if (!may_begin(lane, held)) {
      held.push_back(lane);
      ++it;
      continue;
    }
    Batch batch = std::move(*it);
    it = queue_.erase(it);
    begin(std::move(batch), lane);
    begun = true;
  }
  held_up_ = !queue_.empty();
  return begun;
}

/// What concerns all lanes waits for everything before it and holds up everything behind it.
bool Runner::may_begin(int lane, const std::vector<int>& held) const {
  if (lane == Executor::kAllLanes) return flights_.empty() && held.empty();
  const auto blocks = [&](int other) { return other == lane || other == Executor::kAllLanes; };
  return std::none_of(held.begin(), held.end(), blocks) &&
         std::none_of(flights_.begin(), flights_.end(),
                      [&](const auto& flight) { return blocks(flight->lane); });
}

void Runner::begin(Batch batch, int lane) {
  if (batch.last) return events_.closed();
  flights_.push_back(std::make_unique<Flight>(std::move(batch), lane));
  Flight& flight = *flights_.back();
  events_.begun(flight);
  try {
    executor_.start(flight);
  } catch (const PeerLost&) {
    throw;
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
  } catch (const PeerLost&) {
    throw;
  } catch (const Error& error) {
    fail(flight, error);
    return true;
  }
  flight.work.reset();
  executor_.conclude(flight);
  events_.done(flight, std::nullopt);
  return true;
}

/// All members find such an error before they exchange anything: the world goes on.
void Runner::fail(Flight& flight, const Error& error) {
  if (error.code == ErrorCode::kPeerLost) throw Error(error);  // the peers wait for this rank
  flight.work.reset();
  events_.done(flight, Error(error.code, flight.describe() + ": " + error.what()));
}

void Runner::remove(size_t index) {
  flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(index));
  held_up_ = false;
}

}  // namespace sirtaki
