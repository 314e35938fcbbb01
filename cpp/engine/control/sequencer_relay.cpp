#include "engine/control/sequencer_relay.h"

#include <utility>

namespace sirtaki {

void SequencerRelay::send_down(const Recipients& to, std::string_view message) {
  const std::lock_guard lock(mutex_);
  send_below(to, message);
}

void SequencerRelay::receive_up(const Receive& receive) {
  if (!has_up()) return;
  std::vector<HostAggregator::Report> reports;
  {
    const std::lock_guard lock(mutex_);
    reports.swap(up_);
    has_up_.store(false, std::memory_order_relaxed);
  }
  for (const auto& report : reports) receive(report.from, report.message);
}

void SequencerRelay::receive(Peer& from, Hop hop, std::string_view body) {
  if (hop == Hop::kTell) return receive_answers(from, body);
  if (hop == Hop::kUp) return receive_report(from, body);
  throw Error(ErrorCode::kInternal, "orders from another host than rank 0's");
}

void SequencerRelay::ask(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  for (const int rank : ranks) answers_.erase(rank);
  ask_below(ranks);
}

RankState SequencerRelay::answer(int rank) {
  const std::lock_guard lock(mutex_);
  const auto found = answers_.find(rank);
  return found == answers_.end() ? RankState{} : found->second;
}

void SequencerRelay::receive_answers(const Peer& from, std::string_view body) {
  Reader in(body);
  while (!in.empty()) {
    RankState state = RankState::decode(in, hosts_.size());
    require_under(from, state.rank);
    answers_[state.rank] = std::move(state);
  }
  doorbell_.ring_engine();
}

void SequencerRelay::receive_report(const Peer& from, std::string_view body) {
  Reader in(body);
  Reporters reporters = read_reporters(from, in);
  std::string message(in.rest());
  const Up kind = in.get<Up>();
  up_.push_back({std::move(reporters), std::move(message)});
  has_up_.store(true);
  const bool urgent = kind != Up::kRequest && kind != Up::kReady;
  if (urgent) region_->leader().urgent.store(1);
  doorbell_.ring(0, urgent ? kControl : kRequest);
}

bool SequencerRelay::may_leave() const { return all_local_closed() && all_below_left(); }

}  // namespace sirtaki
