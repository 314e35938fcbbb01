#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/control/relay.h"
#include "engine/requests/messages.h"

// Messages between leaders about their ranks, and their effects.
namespace sirtaki {
namespace {

bool is_in(const HostMap& hosts, HostRange where, int rank) {
  if (rank < 0 || rank >= hosts.size()) return false;
  const int host = hosts.host_of(rank);
  return host >= where.begin && host < where.end;
}

/// Throws if the rank is not there.
void require_in(const HostMap& hosts, HostRange where, int rank, const char* what) {
  if (is_in(hosts, where, rank)) return;
  throw Error(ErrorCode::kInternal,
              std::string(what) + " rank " + std::to_string(rank) + ", which is on another host");
}

std::vector<int32_t> those_in(const HostMap& hosts, HostRange where,
                              const std::vector<int>& ranks) {
  std::vector<int32_t> there;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(there),
               [&](int rank) { return is_in(hosts, where, rank); });
  return there;
}

/// Reads the reporters; throws for any that are not `under` the host that sent this.
Reporters read_reporters(const HostMap& hosts, HostRange under, Reader& in) {
  Reporters reporters{};
  in(reporters.ranks)(reporters.hosts);
  if (reporters.ranks.empty() && reporters.hosts.empty()) {
    throw Error(ErrorCode::kInternal, "a report of nobody");
  }
  for (const int rank : reporters.ranks) require_in(hosts, under, rank, "a report of");
  for (const HostRange& some : reporters.hosts) {
    if (some.begin >= under.begin && some.begin < some.end && some.end <= under.end) continue;
    throw Error(ErrorCode::kInternal, "a report of hosts that are not below it");
  }
  return reporters;
}

}  // namespace

void Relay::receive(Peer& from, Hop hop, std::string_view body) {
  if (hop == Hop::kAsk && from.is_above()) return receive_questions(body);
  if (hop == Hop::kDown && from.is_above()) return receive_orders(body);
  if (hop == Hop::kTell && !from.is_above()) return receive_answers(from, body);
  if (hop == Hop::kUp && !from.is_above()) return receive_report(from, body);
  throw Error(ErrorCode::kInternal, from.is_above() ? "a report to who is not rank 0"
                                                    : "orders from another host than rank 0's");
}

// ---- Up ----

void Relay::send_up(std::string_view message) {
  const std::lock_guard lock(mutex_);
  report({{context_.rank}, {}}, message);
}

void Relay::receive_report(const Peer& from, std::string_view body) {
  Reader in(body);
  Reporters reporters = read_reporters(context_.hosts, from.under, in);
  if (leader_) return report(reporters, in.rest());
  std::string message(in.rest());
  const Up kind = in.get<Up>();
  up_.push_back({std::move(reporters), std::move(message)});
  has_up_.store(true);
  const bool urgent = !reports(kind);
  if (urgent) context_.region->leader().urgent.store(1);
  context_.doorbell.ring(0, urgent ? kControl : kRequest);
}

void Relay::receive_up(const ReceiveUp& receive) {
  if (!has_up()) return;
  std::vector<HostAggregator::Report> reports;
  {
    const std::lock_guard lock(mutex_);
    reports.swap(up_);
    has_up_.store(false, std::memory_order_relaxed);
  }
  for (const auto& report : reports) receive(report.from, report.message);
}

/// A leader's work in each round of the thread; returns until when the thread may sleep.
int64_t Relay::lead(int64_t now_ns) {
  constexpr int64_t kRetryNs = 1'000'000;  // a ring cannot notify its writer that it has room
  Leader& leader = *leader_;
  leader.rings.receive_up([&](const Reporters& from, std::string_view message) {
    leader.aggregator.receive_up(from, message, now_ns);
  });
  send_reports(now_ns);
  leader.rings.flush();
  if (!leader.said_bye && all_below_closed()) {
    peers_[0].link.send(message_of(Hop::kBye));
    leader.said_bye = true;
  }
  const int64_t until = leader.aggregator.deadline();
  return leader.rings.has_backlog() ? std::min(now_ns + kRetryNs, until) : until;
}

void Relay::report(const Reporters& from, std::string_view message) {
  const int64_t now = now_ns();
  leader_->aggregator.receive_up(from, message, now);
  send_reports(now);
  if (leader_->aggregator.deadline() < sleeps_until_) wake();
}

void Relay::send_reports(int64_t now_ns) {
  HostLink& above = peers_[0].link;
  for (const HostAggregator::Report& report : leader_->aggregator.take(now_ns)) {
    std::string text = message_of(Hop::kUp, report.from.ranks, report.from.hosts);
    above.queue(text.append(report.message));
  }
  above.flush();
  wake_for_backlog();
}

// ---- Down ----

void Relay::send_down(const Recipients& to, std::string_view message) {
  const std::lock_guard lock(mutex_);
  send_below(to, message);
}

void Relay::receive_orders(std::string_view body) {
  Reader in(body);
  const auto set = in.get<int32_t>();
  const std::vector<int32_t> ranks = in.get_vector<int32_t>();
  for (const int32_t rank : ranks) require_in(context_.hosts, here_, rank, "orders for");
  const std::string_view message = in.rest();
  leader_->aggregator.receive_down(message);
  const Recipients to{set, leader_->aggregator.roster(set), ranks};
  send_below(to, message);
  leader_->rings.send_down(to, message);
}

/// Sends to ranks on hosts below: one copy per child.
void Relay::send_below(const Recipients& to, std::string_view message) {
  for (Peer& peer : peers_) {
    if (!peer.link.open() || to.members.of_hosts(peer.under).size() == 0) continue;
    const std::vector<int32_t> there = those_in(context_.hosts, peer.under, to.ranks);
    if (there.empty() && !to.ranks.empty()) continue;
    std::string text = message_of(Hop::kDown, to.set, there);
    peer.link.send(text.append(message));
  }
  wake_for_backlog();
}

// ---- The state of ranks ----

void Relay::ask(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  for (const int rank : ranks) answers_.erase(rank);
  ask_below(ranks);
}

RankState Relay::answer(int rank) {
  const std::lock_guard lock(mutex_);
  const auto found = answers_.find(rank);
  return found == answers_.end() ? RankState{} : found->second;
}

void Relay::ask_below(const std::vector<int>& ranks) {
  for (Peer& peer : peers_) {
    const std::vector<int32_t> there = those_in(context_.hosts, peer.under, ranks);
    if (!there.empty() && peer.link.open()) peer.link.send(message_of(Hop::kAsk, there));
  }
  wake_for_backlog();
}

void Relay::receive_questions(std::string_view body) {
  const std::vector<int32_t> ranks = Reader(body).get_vector<int32_t>();
  std::string text = message_of(Hop::kTell);
  Writer out(text);
  for (const int32_t rank : ranks) {
    require_in(context_.hosts, here_, rank, "a question about");
    if (context_.hosts.host_of(rank) != here_.begin) continue;
    out(state_of(*context_.region, context_.hosts, rank, now_ns()));
  }
  ask_below(ranks);
  peers_[0].link.send(text);
}

/// Rank 0 reads the answers.
void Relay::receive_answers(const Peer& from, std::string_view body) {
  for (Reader in(body); !in.empty();) {
    RankState state = RankState::decode(in, context_.hosts.size());
    require_in(context_.hosts, from.under, state.rank, "what is done by");
    if (!leader_) answers_[state.rank] = std::move(state);
  }
  if (!leader_) return context_.doorbell.ring_engine();
  std::string text = message_of(Hop::kTell);
  peers_[0].link.send(text.append(body));
  wake_for_backlog();
}

}  // namespace sirtaki
