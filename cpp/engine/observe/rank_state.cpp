#include "engine/observe/rank_state.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/decimal.h"
#include "base/utf8.h"
#include "engine/observe/exposed.h"

namespace sirtaki {
namespace {

constexpr size_t kMostText = 256;
constexpr int64_t kFreshNs = 2'000'000'000;

double seconds_between(int64_t then_ns, int64_t now_ns) {
  return (static_cast<double>(now_ns) - static_cast<double>(then_ns)) * 1e-9;
}

/// The operation that best shows what the rank is stuck in.
const Recorded& most_telling(const std::vector<Recorded>& all) {
  const auto weight = [](const Recorded& one) {
    if (!one.is_open()) return 0;
    const bool waits = one.awaited.phase != Phase::kNone && !one.is_message();
    return 2 * static_cast<int>(one.stage) + (waits ? 1 : 0);
  };
  return *std::ranges::max_element(all, {}, weight);
}

int64_t since_ns(const Recorded& one) {
  if (one.awaited.phase != Phase::kNone) return one.waits_since_ns;
  if (!one.is_open()) return one.ended_ns;
  if (one.stage == Stage::kSubmitted) return one.submitted_ns;
  return one.stage == Stage::kAgreed ? one.agreed_ns : one.begun_ns;
}

void tell(RankState& state, const Recorded& one, int64_t now_ns) {
  state.stage = one.stage;
  state.operation = one.operation;
  state.tensor = one.tensor;
  state.phase = one.awaited.phase;
  state.peer = one.awaited.rank;
  state.chunk = one.awaited.chunk;
  state.seconds = seconds_between(since_ns(one), now_ns);
}

/// Adds what a thread of the rank is blocked in, if it has reported that recently.
void tell_blocked(RankState& state, const Region& region, int place, int ranks, int64_t now_ns) {
  const int64_t blocked_ns = blocked_for(region, place, now_ns);
  if (blocked_ns == 0) return;
  state.blocked_seconds = std::abs(static_cast<double>(blocked_ns)) * 1e-9;
  state.all_blocked = blocked_ns > 0;
  FlightRecord::Words words;
  if (!region.records(place)[Region::kBlockedRecord].read(words)) return;
  if (const auto one = decode(words, ranks)) tell(state, *one, now_ns);
}

std::string age_text(double seconds) {
  return fixed_text(std::clamp(seconds, 0.0, 1e9), seconds < 10 ? 1 : 0) + " s";
}

std::string peer_text(int peer) { return peer < 0 ? "any rank" : "rank " + std::to_string(peer); }

}  // namespace

int64_t blocked_for(const Region& region, int place, int64_t now_ns) {
  const RankBlock& block = region.rank(place);
  const int64_t at_ns = block.blocked_at_ns.load(std::memory_order_acquire);
  const int64_t blocked_ns = block.blocked_ns.load(std::memory_order_acquire);
  return at_ns > now_ns || now_ns - at_ns > kFreshNs ? 0 : blocked_ns;
}

RankState state_of(const Region& region, const HostMap& hosts, int rank, int64_t now_ns) {
  const int place = hosts.place_of(rank);
  const RankBlock& block = region.rank(place);
  RankState state;
  state.rank = rank;
  // Known also for a rank that has left: how it spent its time is reported afterwards.
  state.exposed_seconds = waited_seconds(block, now_ns);
  state.calls = block.waits.load(std::memory_order_relaxed);
  const std::vector<Recorded> all = read_records(region.records(place), hosts.size(), 1);
  const auto count = [&all](auto is) {
    return static_cast<uint64_t>(std::count_if(all.begin(), all.end(), is));
  };
  const uint64_t open = count([](const Recorded& one) { return one.is_open(); });
  if (!all.empty()) {
    const uint64_t messages = count([](const Recorded& one) { return one.is_message(); });
    state.completed = std::max(all.back().number, open - messages) - (open - messages);
  }
  state.place = RankState::Place::kGone;
  if (block.bye.load(std::memory_order_acquire) != 0) return state;
  state.place = RankState::Place::kWorld;
  state.open = static_cast<uint32_t>(open);
  if (!all.empty()) tell(state, most_telling(all), now_ns);
  tell_blocked(state, region, place, hosts.size(), now_ns);
  return state;
}

RankState RankState::decode(Reader& in, int ranks) {
  RankState state;
  fields(state, in);
  if (state.rank < 0 || state.rank >= ranks || state.peer < -1 || state.peer >= ranks ||
      state.place > Place::kGone || state.stage > Stage::kFailed ||
      static_cast<int>(state.phase) >= kPhases) {
    throw Error(ErrorCode::kInternal, "what a rank is doing cannot be");
  }
  for (std::string* text : {&state.operation, &state.tensor}) {
    *text = valid_utf8(text->substr(0, kMostText));
  }
  for (double* seconds : {&state.seconds, &state.blocked_seconds, &state.exposed_seconds}) {
    if (!std::isfinite(*seconds)) *seconds = 0;
  }
  return state;
}

// ---- Texts ----

std::string wait_text(Phase phase, uint32_t chunk, const std::string& who) {
  static constexpr const char* kVerbs[kPhases] = {"",      "write", "be done with",
                                                  "leave", "send",  "take"};
  std::string text = "for " + who + " to " + kVerbs[static_cast<size_t>(phase)] + " ";
  if (phase == Phase::kLeave) return text + "an earlier operation";
  return text + (chunk == Awaited::kNoChunk ? "its part" : "chunk " + std::to_string(chunk));
}

std::string shown(const std::string& operation, const std::string& tensor, int peer) {
  if (operation == "send") return "send to " + peer_text(peer) + " with " + tensor;
  if (operation == "receive") return "receive from " + peer_text(peer) + " with " + tensor;
  return operation + " '" + tensor + "'";
}

std::string text_of(const RankState& state) {
  if (!state.known()) return "";
  if (state.place == RankState::Place::kGone) return "gone from the world";
  const std::string what = shown(state.operation, state.tensor, state.peer);
  const std::string age = age_text(state.seconds);
  const std::string more =
      state.open > 1 ? " (" + std::to_string(state.open - 1) + " more open)" : "";
  switch (state.stage) {
    case Stage::kNone:
      return "in no operation yet";
    case Stage::kSubmitted:
      return "waiting with " + what + ", submitted " + age + " ago, for other ranks" + more;
    case Stage::kAgreed:
      return "about to begin " + what + " for " + age + more;
    case Stage::kHandedOver:
      return "in " + what + ", handed to its accelerator " + age + " ago" + more;
    case Stage::kDone:
    case Stage::kFailed:
      return "in no operation; the last one, " + what + ", ended " + age + " ago";
    case Stage::kUnderWay:
      break;
  }
  if (!state.waits()) return "in " + what + " for " + age + more;
  return "in " + what + ", waiting " + age + " " +
         wait_text(state.phase, state.chunk, peer_text(state.peer)) + more;
}

}  // namespace sirtaki
