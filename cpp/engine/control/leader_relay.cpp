#include "engine/control/leader_relay.h"

#include <algorithm>
#include <utility>

#include "engine/observe/rank_state.h"

namespace sirtaki {

LeaderRelay::LeaderRelay(const HostMap& hosts, int rank, std::shared_ptr<Region> region,
                         const Doorbell& doorbell, std::span<HostLink> links,
                         double timeout_seconds, Lost lost)
    : Relay(hosts, rank, std::move(region), doorbell, links, timeout_seconds, std::move(lost)),
      here_(hosts.tree().under(hosts.host_of(rank))),
      aggregator_(hosts, here_),
      up_in_(static_cast<size_t>(region_->ranks())),
      down_out_(static_cast<size_t>(region_->ranks())) {}

void LeaderRelay::send_up(std::string_view message) {
  const std::lock_guard lock(mutex_);
  report({{rank_}, {}}, message);
}

void LeaderRelay::report(const Reporters& from, std::string_view message) {
  const int64_t now = now_ns();
  aggregator_.receive_up(from, message, now);
  send_reports(now);
  if (aggregator_.deadline() < sleeps_until_) wake();
}

int64_t LeaderRelay::work(int64_t now_ns) {
  constexpr int64_t kRetryNs = 1'000'000;  // a ring has no way to tell that it has room
  read_rings(now_ns);
  send_reports(now_ns);
  const bool full = !deliver_waiting();
  if (!said_bye_ && all_local_closed() && all_below_left()) {
    above().send(framed(Hop::kBye, {}));
    said_bye_ = true;
  }
  return full ? std::min(now_ns + kRetryNs, aggregator_.deadline()) : aggregator_.deadline();
}

void LeaderRelay::read_rings(int64_t now_ns) {
  for (int place = 1; place < region_->ranks(); ++place) {
    ByteRing& ring = region_->up(place);
    if (ring.empty()) continue;
    std::string& stream = up_in_[static_cast<size_t>(place)];
    const int rank = hosts_.ranks_on(hosts_.host_of(rank_))[static_cast<size_t>(place)];
    try {
      ring.read(stream);
      take_frames(
          stream, [&](std::string_view message) { aggregator_.receive_up(rank, message, now_ns); },
          region_->generation());
    } catch (const Error& error) {
      return lose_liar(place, error.what());
    }
  }
}

/// A rank of this host says what no rank says: the world ends.
void LeaderRelay::lose_liar(int place, const std::string& why) const {
  const std::vector<int>& local = hosts_.ranks_on(hosts_.host_of(rank_));
  lost_({local[static_cast<size_t>(place)], -1, "it sent what no rank sends: " + why});
}

void LeaderRelay::send_reports(int64_t now_ns) {
  HostLink& link = above();
  for (const HostAggregator::Report& report : aggregator_.take(now_ns)) {
    std::string text;
    Writer(text).put(Hop::kUp).put_vector(report.from.ranks).put_vector(report.from.hosts);
    text.append(report.message);
    link.queue(text);
  }
  link.flush();
  wake_for_backlog();
}

void LeaderRelay::receive(Peer& from, Hop hop, std::string_view body) {
  const bool is_above = from.under.size() == 0;
  if (hop == Hop::kAsk && is_above) return receive_questions(body);
  if (hop == Hop::kDown && is_above) return receive_orders(body);
  if (hop == Hop::kTell && !is_above) return receive_answers(from, body);
  if (hop == Hop::kUp && !is_above) return receive_report(from, body);
  throw Error(ErrorCode::kInternal, is_above ? "a report to who is not rank 0"
                                             : "orders from another host than rank 0's");
}

void LeaderRelay::receive_report(const Peer& from, std::string_view body) {
  Reader in(body);
  const Reporters reporters = read_reporters(from, in);
  report(reporters, in.rest());
}

/// Rank 0 looks at them.
void LeaderRelay::receive_answers(const Peer& from, std::string_view body) {
  for (Reader in(body); !in.empty();) {
    require_under(from, RankState::decode(in, hosts_.size()).rank);
  }
  above().send(framed(Hop::kTell, body));
  wake_for_backlog();
}

void LeaderRelay::receive_questions(std::string_view body) {
  const int host = hosts_.host_of(rank_);
  const std::vector<int32_t> ranks = Reader(body).get_vector<int32_t>();
  std::string text;
  Writer out(text);
  out.put(Hop::kTell);
  for (const int32_t rank : ranks) {
    const bool exists = rank >= 0 && rank < hosts_.size();
    if (!exists || !is_here(hosts_.host_of(rank))) {
      throw Error(ErrorCode::kInternal,
                  "a question about rank " + std::to_string(rank) + ", which is on another host");
    }
    if (hosts_.host_of(rank) != host) continue;
    state_of(*region_, hosts_, rank, now_ns()).encode(out);
  }
  ask_below(ranks);
  above().send(text);
}

void LeaderRelay::receive_orders(std::string_view body) {
  Reader in(body);
  const auto set = in.get<int32_t>();
  const std::vector<int32_t> ranks = in.get_vector<int32_t>();
  for (const int32_t rank : ranks) {
    if (rank >= 0 && rank < hosts_.size() && is_here(hosts_.host_of(rank))) continue;
    throw Error(ErrorCode::kInternal,
                "orders for rank " + std::to_string(rank) + ", which is on another host");
  }
  const std::string_view message = in.rest();
  aggregator_.receive_down(message);
  const Recipients to{set, aggregator_.roster(set), ranks};
  send_below(to, message);
  deliver(to, message);
}

/// To those of this host.
void LeaderRelay::deliver(const Recipients& to, std::string_view message) {
  const int host = hosts_.host_of(rank_);
  if (to.ranks.empty()) {
    const Stretch here = to.members.of_hosts({host, host + 1});
    for (int at = here.begin; at < here.end; ++at) {
      deliver(hosts_.place_of(to.members.rank_at(at)), message);
    }
  }
  for (const int rank : to.ranks) {
    if (hosts_.host_of(rank) == host) deliver(hosts_.place_of(rank), message);
  }
}

void LeaderRelay::deliver(int place, std::string_view message) {
  append_frame(down_out_[static_cast<size_t>(place)], message, region_->generation());
  push(place);
}

void LeaderRelay::push(int place) {
  std::string& waiting = down_out_[static_cast<size_t>(place)];
  try {
    waiting.erase(0, region_->down(place).write(waiting));
  } catch (const Error& error) {
    waiting.clear();
    return lose_liar(place, error.what());
  }
  doorbell_.ring(place, kControl);
}

/// Tries again what full rings did not take; true if nothing waits any more.
bool LeaderRelay::deliver_waiting() {
  bool done = true;
  for (int place = 0; place < region_->ranks(); ++place) {
    std::string& waiting = down_out_[static_cast<size_t>(place)];
    if (waiting.empty()) continue;
    push(place);
    done &= waiting.empty();
  }
  return done;
}

bool LeaderRelay::has_news() const {
  for (int place = 1; place < region_->ranks(); ++place) {
    if (!region_->up(place).empty()) return true;
  }
  return false;
}

bool LeaderRelay::may_leave() const { return said_bye_ && !peers_[0].link.has_backlog(); }

}  // namespace sirtaki
