#include <algorithm>

#include "base/clock.h"
#include "engine/sequencer/sequencer.h"

// Fails operations that some members have not submitted for too long.
namespace sirtaki {

void Sequencer::check_stalls(int64_t now_ns, const StateOf& state_of) {
  constexpr int64_t kLookNs = 1'250'000'000;  // the driver looks a little more often
  const double limit = options_.stall_shutdown_seconds;
  const int64_t limit_ns = ns_of(limit);
  if (ended_ || limit_ns <= 0) return;
  for (Pending* pending : reports_.all()) {
    const int64_t most_ns = std::max(kLookNs, limit_ns / 4);
    if (pending->stalled.look(true, now_ns, most_ns) <= limit_ns) continue;
    const std::optional<std::string> missing = missing_text(*pending, state_of);
    if (!missing) continue;
    fail(*pending, ErrorCode::kTimeout, "not submitted within " + seconds_text(limit) + *missing);
    reports_.take(*pending);
  }
}

/// The ranks that have not submitted it, and what the first of them are doing; nothing while the
/// latter is being collected.
std::optional<std::string> Sequencer::missing_text(const Pending& pending,
                                                   const StateOf& state_of) {
  constexpr int kMostStates = 8;
  std::string text;
  std::string states;
  int asked = 0;
  bool known = true;
  for (const int rank : reports_.missing(pending)) {
    text += (text.empty() ? "; missing ranks: " : ", ") + std::to_string(rank) +
            options_.host_text(rank);
    if (++asked > kMostStates) continue;
    const std::optional<RankState> state = state_of(rank);
    known &= state.has_value();
    if (state && state->known()) {
      states += ". Rank " + std::to_string(rank) + ": " + text_of(*state);
    }
  }
  return known ? std::optional(text + states) : std::nullopt;
}

}  // namespace sirtaki
