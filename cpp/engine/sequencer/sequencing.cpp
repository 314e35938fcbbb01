#include "engine/sequencer/sequencing.h"

#include <algorithm>
#include <utility>

namespace sirtaki {

Sequencing::Sequencing(RankContext& context, const Backend& backend, Control& control, Relay* relay)
    : context_(context),
      backend_(backend),
      control_(control),
      relay_(relay),
      sequencer_(
          context.hosts, context.options,
          [this](const Recipients& to, std::string_view message) {
            control_.send_down(to, message);
          },
          backend.may_be_spared()) {}

void Sequencing::receive_own(std::string_view message) {
  receive({{0}, {}}, message, now_ns());
  // A peer's request may be the last one missing now, so a sleeping engine must wake for it.
  if (sequencer_.expects_peers()) context_.doorbell.engine().want_also(kRequest);
}

void Sequencing::advance() {
  control_.forget_urgent();
  if (!control_.has_up() && !sequencer_.has_ready() && askers_.empty()) return;
  const int64_t now = now_ns();
  collect(now);
  dispatch(now);
  tell_askers(now);
}

void Sequencing::receive(const Reporters& from, std::string_view message, int64_t now_ns) {
  const bool asks = Reader(message).get<Up>() == Up::kAsk;
  if (!asks) return sequencer_.receive(from, message, now_ns);
  if (askers_.empty()) asked_.clear();  // new askers want new answers
  askers_.insert(askers_.end(), from.ranks.begin(), from.ranks.end());
}

/// Answers once the state of all ranks is known, or those who do not answer have had their time.
void Sequencing::tell_askers(int64_t now_ns) {
  if (askers_.empty()) return;
  std::string message = message_of(Down::kTell);
  Writer out(message);
  bool known = true;
  for (int rank = 0; rank < context_.size; ++rank) {
    const std::optional<RankState> state = state_of_rank(rank, now_ns);
    known &= state.has_value();
    if (state && state->known()) out(*state);
  }
  ask_leaders();
  if (known) sequencer_.tell(std::exchange(askers_, {}), message);
}

void Sequencing::collect(int64_t now_ns) {
  control_.receive_up([&](const Reporters& from, std::string_view message) {
    if (!context_.doorbell.aborted()) receive(from, message, now_ns);
  });
}

/// Batches without rank 0 go out at once; one with it waits for the one before in its track,
/// because operations that become ready meanwhile can join it.
void Sequencing::dispatch(int64_t now_ns) {
  const auto may_go = [this](int32_t set) {
    return std::find(busy_.begin(), busy_.end(), backend_.track_of(set)) == busy_.end();
  };
  while (!control_.has_down() && !control_.has_backlog() && sequencer_.dispatch(now_ns, may_go)) {
  }
}

void Sequencing::done(const Flight& flight) {
  const int track = backend_.track_of(flight.base().set);
  busy_.erase(std::find(busy_.begin(), busy_.end(), track));
  sequencer_.batch_done(static_cast<int64_t>(flight.op.longest),
                        context_.doorbell.data_sleeps() - flight.sleeps_before);
}

void Sequencing::check_stalls(int64_t now_ns) {
  collect(now_ns);
  sequencer_.check_stalls(now_ns, [&](int rank) { return state_of_rank(rank, now_ns); });
  ask_leaders();
  dispatch(now_ns);
  tell_askers(now_ns);
}

std::string Sequencing::all_blocked(int64_t now_ns) {
  std::string all;
  const double limit = context_.options.deadlock_seconds;
  // Usually the ranks of this host already show that not all are; reading on takes longer.
  for (const int rank : context_.hosts.ranks_on(0)) {
    const int64_t ns = blocked_for(*context_.region, context_.hosts.place_of(rank), now_ns);
    if (static_cast<double>(ns) * 1e-9 < limit) return "";
  }
  for (int rank = 0; rank < context_.size; ++rank) {
    const std::optional<RankState> state = state_of_rank(rank, now_ns);
    if (!state || !state->all_blocked || state->blocked_seconds < limit) {
      ask_leaders();
      return "";
    }
    all += (rank == 0 ? " " : "; ") + context_.name_of(rank) + ": " + text_of(*state);
  }
  return all;
}

/// Reads the state of ranks of this host, and asks the leaders of others. Nothing: the answer is
/// awaited, for at most a second; call again. Without an answer, the state is then unknown.
std::optional<RankState> Sequencing::state_of_rank(int rank, int64_t now_ns) {
  constexpr int64_t kPatienceNs = 1'000'000'000;
  constexpr int64_t kFreshNs = 5'000'000'000;
  const HostMap& hosts = context_.hosts;
  if (hosts.host_of(rank) == 0) return state_of(*context_.region, hosts, rank, now_ns);
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

/// Asks about the ranks whose state `state_of_rank` could not return.
void Sequencing::ask_leaders() {
  if (!questions_.empty()) relay_->ask(std::exchange(questions_, {}));
}

}  // namespace sirtaki
