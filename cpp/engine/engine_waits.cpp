#include <algorithm>
#include <cstdio>

#include "engine/engine.h"

// What operations under way wait for, as others may see it, and for how long they may.
namespace sirtaki {

/// Called where the driver prepares to sleep, so that polling costs nothing.
void Engine::note_waits() {
  const int64_t now = now_ns();
  stalls_due_ = sequencer_ != nullptr && now >= stall_check_ns_;
  for (const auto& flight : runner_.flights()) {
    const Awaited awaited = flight->work->awaited();
    if (flight->waits_since_ns != 0 && awaited == flight->awaited) {
      require_progress(*flight, now);
      continue;
    }
    flight->awaited = awaited;
    flight->waits_since_ns = flight->looked_ns = now;
    flight->stuck_ns = 0;
    recorder_.waits(flight->items[0].record, awaited, now);
  }
}

void Engine::flight_goes_on(Flight& flight) {
  flight.waits_since_ns = 0;
  recorder_.waits(flight.items[0].record, {}, 0);
}

/// Its peers are inside the same operation, and nobody can leave it alone: the world ends.
void Engine::require_progress(Flight& flight, int64_t now_ns) {
  const auto limit = static_cast<int64_t>(options_.data_timeout_seconds * 1e9);
  if (limit <= 0) return;
  // Who was stopped itself, perhaps with all its peers, has not waited for them meanwhile.
  flight.stuck_ns += std::min(now_ns - flight.looked_ns, limit / 4);
  flight.looked_ns = now_ns;
  if (flight.stuck_ns < limit) return;
  const int peer = flight.awaited.rank;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g s", options_.data_timeout_seconds);
  std::string why =
      flight.describe() + " made no progress for " + seconds + " on " + rank_text(rank_);
  if (peer != Awaited::kNobody) {
    why += ", which waits " + wait_text(flight.awaited, rank_text(peer));
    if (hosts_.host_of(peer) == hosts_.host_of(rank_)) {
      why += " (it is " + state_text(*region_, hosts_, peer, now_ns) + ")";
    }
  }
  why += " (SIRTAKI_DATA_TIMEOUT_SECONDS sets how long is too long)";
  endpoint_.doorbell.abort(
      {peer != Awaited::kNobody ? peer : rank_, rank_, why, ErrorCode::kTimeout});
  endpoint_.doorbell.check_abort();
}

std::vector<Engine::RankRecords> Engine::snapshot(size_t most) const {
  require_own_process();
  std::vector<RankRecords> ranks;
  for (const int rank : hosts_.ranks_on(hosts_.host_of(rank_))) {
    ranks.push_back({rank, read_records(region_->records(hosts_.place_of(rank)), size_, most)});
  }
  return ranks;
}

}  // namespace sirtaki
