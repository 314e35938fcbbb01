#include "engine/sequencer/sequencer.h"

// Operations that some members have not submitted for too long.
namespace sirtaki {

std::vector<std::string> Sequencer::check_stalls(int64_t now_ns, const StateOf& state_of) {
  constexpr int64_t kWarnAgainNs = 60'000'000'000;
  if (ended_) return {};
  std::vector<std::string> warnings;
  const double limit = options_.stall_shutdown_seconds;
  const double patience = options_.stall_warning_seconds;
  for (Pending* pending : reports_.all()) {
    const double seconds = static_cast<double>(now_ns - pending->since_ns) * 1e-9;
    const bool fails = limit > 0 && seconds > limit;
    const bool due = pending->warned_ns == 0 || now_ns - pending->warned_ns >= kWarnAgainNs;
    const bool warns = patience > 0 && due && seconds > patience;
    if (!fails && !warns) continue;
    const std::optional<std::string> missing = missing_text(*pending, state_of);
    if (!missing) continue;
    if (fails) {
      fail(*pending, ErrorCode::kTimeout, "not submitted within " + seconds_text(limit) + *missing);
      reports_.take(*pending);
    } else {
      pending->warned_ns = now_ns;
      warnings.push_back(describe(pending->base(), pending->ordinal) + " has waited for " +
                         std::to_string(static_cast<int>(seconds)) + " s" + *missing);
    }
  }
  return warnings;
}

/// Who has not submitted it, and what the first of them are doing; nothing as long as that is being
/// found out.
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
