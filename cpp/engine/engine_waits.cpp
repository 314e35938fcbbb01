#include <algorithm>
#include <cstdio>

#include "engine/driving.h"

// What operations under way wait for, as others may see it, and for how long they may.
namespace sirtaki {

/// Called where the driver prepares to sleep, so that polling costs nothing.
void Engine::note_waits() {
  const int64_t now = now_ns();
  pairs_.check_silence();
  require_pairs_progress(now);
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

int64_t Engine::data_timeout_ns() const {
  return static_cast<int64_t>(options_.data_timeout_seconds * 1e9);
}

void Engine::require_pairs_progress(int64_t now_ns) {
  const int64_t limit = data_timeout_ns();
  if (limit <= 0) return;
  const auto stuck = pairs_.find_stuck(now_ns, limit);
  if (stuck) give_up_waiting(stuck->transfer, stuck->awaited, now_ns);
}

/// Its peers are inside the same operation, and nobody can leave it alone: the world ends.
void Engine::require_progress(Flight& flight, int64_t now_ns) {
  const int64_t limit = data_timeout_ns();
  if (limit <= 0) return;
  // Who was stopped itself, perhaps with all its peers, has not waited for them meanwhile.
  flight.stuck_ns += std::min(now_ns - flight.looked_ns, limit / 4);
  flight.looked_ns = now_ns;
  if (flight.stuck_ns >= limit) give_up_waiting(flight.describe(), flight.awaited, now_ns);
}

void Engine::give_up_waiting(const std::string& what, const Awaited& awaited, int64_t now_ns) {
  const int peer = awaited.rank;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g s", options_.data_timeout_seconds);
  std::string why = what + " made no progress for " + seconds + " on " + rank_text(rank_);
  if (peer != Awaited::kNobody) {
    why += ", which waits " + wait_text(awaited, rank_text(peer));
    if (hosts_.host_of(peer) == hosts_.host_of(rank_)) {
      why += " (it is " + state_text(*region_, hosts_, peer, now_ns) + ")";
    }
  }
  why += " (SIRTAKI_DATA_TIMEOUT_SECONDS sets how long is too long)";
  endpoint_.doorbell.abort(
      {peer != Awaited::kNobody ? peer : rank_, rank_, why, ErrorCode::kTimeout});
  endpoint_.doorbell.check_abort();
}

std::string Engine::own_state(int64_t now_ns) {
  const std::string text = state_text(*region_, hosts_, rank_, now_ns);
  if (!text.starts_with(kNoOperation) || !try_role()) return text;
  const Role role(*this);
  const std::string pending = pairs_.describe_pending();
  return pending.empty() ? text : "in " + pending;
}

void Engine::tell_blocked(int64_t blocked_ns, int64_t now_ns, const std::string& what) {
  if (mark_.forked()) return;  // the region is the parent's
  RankBlock& block = region_->rank(place_);
  block.blocked_in[what.copy(block.blocked_in, sizeof block.blocked_in - 1)] = 0;
  block.blocked_ns.store(blocked_ns, std::memory_order_release);
  block.blocked_at_ns.store(now_ns, std::memory_order_release);
}

/// Rank 0: whether no rank of the job can go on, for each waits for another.
void Engine::check_deadlock(int64_t now_ns) {
  const double limit = options_.deadlock_seconds;
  if (!options_.has_whole_job || limit <= 0 || endpoint_.doorbell.aborted()) return;
  std::string all;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    for (int rank = 0; rank < size_; ++rank) {
      const std::optional<RankState> state = states_.of(rank, now_ns);
      if (!state || state->blocked_seconds < limit) return states_.ask();
      all += (rank == 0 ? " " : "; ") + rank_text(rank) + ": " + state->text;
    }
  }
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, " for %g s", limit);
  const std::string why =
      std::string(kDeadlocked) + seconds +
      ", each waiting for another: let all ranks call the same operations in the same order "
      "(SIRTAKI_DEADLOCK_SECONDS sets how long is too long):" +
      all;
  log_.write(LogLevel::kError, why);
  endpoint_.doorbell.abort({0, 0, why, ErrorCode::kTimeout});
  tell_relay();
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
