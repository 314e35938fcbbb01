#include "engine/observe/rank_states.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/utf8.h"
#include "engine/control/relay.h"

namespace sirtaki {
namespace {

/// How long ago, whatever the other process wrote.
std::string ago_text(int64_t now_ns, int64_t then_ns) {
  const double seconds = (static_cast<double>(now_ns) - static_cast<double>(then_ns)) * 1e-9;
  char text[32];
  std::snprintf(text, sizeof text, seconds < 10 ? "%.1f s" : "%.0f s",
                std::clamp(seconds, 0.0, 1e9));
  return text;
}

/// The one that tells most of what the rank is stuck in.
const Recorded& most_telling(const std::vector<const Recorded*>& open) {
  const auto weight = [](const Recorded* one) {
    return 2 * static_cast<int>(one->stage) + (one->awaited.phase != Phase::kNone ? 1 : 0);
  };
  return **std::max_element(open.begin(), open.end(), [&](const Recorded* a, const Recorded* b) {
    return weight(a) < weight(b);
  });
}

std::string open_text(const Recorded& one, int64_t now_ns) {
  if (one.stage == Stage::kSubmitted) {
    return "waiting with " + one.shown + ", submitted " + ago_text(now_ns, one.submitted_ns) +
           " ago, for other ranks";
  }
  if (one.stage == Stage::kAgreed) {
    return "about to begin " + one.shown + " for " + ago_text(now_ns, one.agreed_ns);
  }
  if (one.awaited.phase == Phase::kNone) {
    return "in " + one.shown + " for " + ago_text(now_ns, one.begun_ns);
  }
  return "in " + one.shown + ", waiting " + ago_text(now_ns, one.waits_since_ns) + " " +
         wait_text(one.awaited, "rank " + std::to_string(one.awaited.rank));
}

}  // namespace

std::string wait_text(const Awaited& awaited, const std::string& who) {
  static constexpr const char* kVerbs[kPhases] = {"",      "write", "be done with",
                                                  "leave", "send",  "take"};
  std::string text = "for " + who + " to " + kVerbs[static_cast<size_t>(awaited.phase)] + " ";
  if (awaited.phase == Phase::kLeave) return text + "an earlier operation";
  return text + (awaited.chunk == Awaited::kNoChunk ? "its part"
                                                    : "chunk " + std::to_string(awaited.chunk));
}

std::string state_text(const Region& region, const HostMap& hosts, int rank, int64_t now_ns) {
  const int place = hosts.place_of(rank);
  if (region.rank(place).bye.load(std::memory_order_acquire) != 0) return "gone from the world";
  const std::vector<Recorded> all = read_records(region.records(place), hosts.size(), 1);
  std::vector<const Recorded*> open;
  const Recorded* last = nullptr;
  for (const Recorded& one : all) {
    if (one.is_open()) {
      open.push_back(&one);
    } else {
      last = &one;
    }
  }
  if (!open.empty()) {
    const std::string text = open_text(most_telling(open), now_ns);
    return open.size() == 1 ? text : text + " (" + std::to_string(open.size() - 1) + " more open)";
  }
  const std::string none(kNoOperation);
  if (last == nullptr) return none + "; there was none before";
  return none + "; the last one, " + last->shown + ", ended " + ago_text(now_ns, last->ended_ns) +
         " ago";
}

RankState state_of(const Region& region, const HostMap& hosts, int rank, int64_t now_ns) {
  constexpr int64_t kFreshNs = 2'000'000'000;
  const RankBlock& block = region.rank(hosts.place_of(rank));
  const int64_t at_ns = block.blocked_at_ns.load(std::memory_order_acquire);
  const int64_t blocked_ns = block.blocked_ns.load(std::memory_order_acquire);
  if (blocked_ns <= 0 || at_ns > now_ns || now_ns - at_ns > kFreshNs) {
    return {state_text(region, hosts, rank, now_ns), 0};
  }
  // Others can write here, so nothing is read past its end.
  const size_t length = strnlen(block.blocked_in, sizeof block.blocked_in);
  return {valid_utf8({block.blocked_in, length}), static_cast<double>(blocked_ns) * 1e-9};
}

std::optional<RankState> RankStates::of(int rank, int64_t now_ns) {
  if (hosts_.host_of(rank) == 0) return state_of(*region_, hosts_, rank, now_ns);
  if (relay_ == nullptr) return RankState{};
  const auto found = asked_.find(rank);
  if (found == asked_.end() || (found->second.told && now_ns - found->second.at_ns > kFreshNs)) {
    asked_[rank] = {now_ns, {}, false};
    questions_.push_back(rank);
    return std::nullopt;
  }
  Asked& asked = found->second;
  if (asked.answer.text.empty()) asked.answer = relay_->answer(rank);
  if (asked.answer.text.empty() && now_ns - asked.at_ns < kPatienceNs) return std::nullopt;
  asked.told = true;
  return asked.answer;
}

void RankStates::ask() {
  if (questions_.empty()) return;
  relay_->ask(questions_);
  questions_.clear();
}

}  // namespace sirtaki
