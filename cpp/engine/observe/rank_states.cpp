#include "engine/observe/rank_states.h"

#include "engine/control/relay.h"

namespace sirtaki {

std::optional<RankState> RankStates::of(int rank, int64_t now_ns) {
  const HostMap& hosts = context_.hosts;
  if (hosts.host_of(rank) == 0) return state_of(*context_.region, hosts, rank, now_ns);
  if (relay_ == nullptr) return RankState{};
  const auto found = asked_.find(rank);
  if (found == asked_.end() || (found->second.told && now_ns - found->second.at_ns > kFreshNs)) {
    asked_[rank] = {now_ns, {}, false};
    questions_.push_back(rank);
    return std::nullopt;
  }
  Asked& asked = found->second;
  if (!asked.answer.known()) asked.answer = relay_->answer(rank);
  if (!asked.answer.known() && now_ns - asked.at_ns < kPatienceNs) return std::nullopt;
  asked.told = true;
  return asked.answer;
}

void RankStates::ask() {
  if (questions_.empty()) return;
  relay_->ask(questions_);
  questions_.clear();
}

}  // namespace sirtaki
