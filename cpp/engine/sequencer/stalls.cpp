#include "engine/sequencer/stalls.h"

namespace sirtaki {
namespace {

constexpr int64_t kWarnAgainNs = 60'000'000'000;

std::string host_text(const EngineOptions& options, int rank) {
  const auto index = static_cast<size_t>(rank);
  return index < options.hosts.size() ? " (" + options.hosts[index] + ")" : "";
}

/// Nothing as long as it is being found out.
std::optional<std::string> missing_text(Reports& reports, const EngineOptions& options,
                                        const Pending& pending, const StateOf& state_of) {
  constexpr int kMostStates = 8;
  std::string text;
  std::string states;
  int asked = 0;
  bool known = true;
  for (const int rank : reports.missing(pending)) {
    text += (text.empty() ? "" : ", ") + std::to_string(rank) + host_text(options, rank);
    if (++asked > kMostStates) continue;
    const std::optional<RankState> state = state_of(rank);
    known &= state.has_value();
    if (state && state->known()) {
      states += ". Rank " + std::to_string(rank) + ": " + text_of(*state);
    }
  }
  return known ? std::optional(text + states) : std::nullopt;
}

}  // namespace

std::vector<Stall> find_stalls(Reports& reports, const EngineOptions& options, int64_t now_ns,
                               const StateOf& state_of) {
  std::vector<Stall> stalls;
  for (Pending* pending : reports.all()) {
    const double seconds = static_cast<double>(now_ns - pending->since_ns) * 1e-9;
    const double limit = options.stall_shutdown_seconds;
    const double patience = options.stall_warning_seconds;
    const bool fails = limit > 0 && seconds > limit;
    const bool due = pending->warned_ns == 0 || now_ns - pending->warned_ns >= kWarnAgainNs;
    const bool warns = patience > 0 && due && seconds > patience;
    if (!fails && !warns) continue;
    std::optional<std::string> missing = missing_text(reports, options, *pending, state_of);
    if (missing) stalls.push_back({pending, seconds, std::move(*missing), fails});
  }
  return stalls;
}

}  // namespace sirtaki
