#include "engine/control/relay.h"

#include <algorithm>
#include <cstdio>

#include "engine/observe/rank_states.h"

namespace sirtaki {
namespace {

constexpr int64_t kHeartbeatNs = 1'000'000'000;

std::string framed(Hop hop, std::string_view body) {
  std::string message(1, static_cast<char>(hop));
  message.append(body);
  return message;
}

std::string seconds_text(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(ns) * 1e-9);
  return text;
}

}  // namespace

Relay::Relay(const HostMap& hosts, int rank, std::shared_ptr<Region> region,
             const Doorbell& doorbell, std::span<HostLink> links, double timeout_seconds, Lost lost)
    : hosts_(hosts),
      rank_(rank),
      region_(std::move(region)),
      doorbell_(doorbell),
      lost_(std::move(lost)),
      timeout_ns_(static_cast<int64_t>(timeout_seconds * 1e9)),
      heartbeat_ns_(timeout_ns_ > 0 ? std::min(kHeartbeatNs, timeout_ns_ / 5) : kHeartbeatNs) {
  const HostTree tree = hosts_.tree();
  const int own = hosts_.host_of(rank_);
  for (HostLink& link : links) {
    const int host = hosts_.host_of(link.rank());
    peers_.push_back({link, host < own ? HostRange{} : tree.under(host), 0, false, ""});
  }
}

void Relay::await_farewell() {
  std::unique_lock lock(mutex_);
  wake();
  left_.wait(lock, [this] { return may_leave() || told_; });
}

void Relay::look() {
  constexpr size_t kMost = 8;  // asking more sockets takes longer than being woken
  if (peers_.size() > kMost) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (Peer& peer : peers_) {
    // A connection that has ended is left to the thread, which may be polling it.
    if (peer.link.fd() >= 0 && !receive_from(peer) && !peer.broken.empty()) wake();
  }
}

int Relay::prepare(std::vector<pollfd>& polled) {
  const std::lock_guard lock(mutex_);
  const Round round(*this);
  // Silence is measured from here: had this process been stopped, what came meanwhile is read
  // before its absence is judged.
  polled_ns_ = now_ns();
  for (Peer& peer : peers_) {
    if (peer.link.has_early()) receive_from(peer);  // no socket tells of it
  }
  spread_loss();
  int64_t until = HostAggregator::kNever;
  try {
    until = work(polled_ns_);
  } catch (const std::exception&) {
    doorbell_.abort(rank_);
  }
  spread_loss();  // what this round found
  if (polled_ns_ - beaten_ns_ >= heartbeat_ns_) {
    send_to_all(Hop::kHeartbeat);
    beaten_ns_ = polled_ns_;
  }
  sleeps_until_ = std::min(until, beaten_ns_ + heartbeat_ns_);
  if (may_leave() || told_) left_.notify_all();
  for (const Peer& peer : peers_) {
    const int events = peer.link.has_backlog() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({peer.link.fd(), static_cast<short>(events), 0});
  }
  region_->leader().relay.park(kRequest);
  if (has_news()) return 0;
  const int64_t left_ns = std::max<int64_t>(0, sleeps_until_ - polled_ns_);
  return static_cast<int>((left_ns + 999'999) / 1'000'000);
}

void Relay::serve(std::span<const pollfd> polled) {
  const std::lock_guard lock(mutex_);
  const Round round(*this);
  region_->leader().relay.unpark();
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.link.fd() < 0 || (polled[i].revents == 0 && peer.broken.empty())) continue;
    peer.link.flush();
    if (receive_from(peer)) continue;
    peer.link.close();
    if (peer.bye || may_leave()) continue;
    lost_({peer.link.rank(), -1,
           peer.broken.empty() ? "its connection to this host was closed"
                               : "it sent what no leader of a host sends: " + peer.broken});
  }
  check_silence(polled_ns_);
}

/// False if nothing more will come.
bool Relay::receive_from(Peer& peer) {
  if (!peer.broken.empty()) return false;
  try {
    return peer.link.receive([&](std::string_view message) {
      peer.heard_ns = now_ns();
      Reader in(message);
      const Hop hop = in.get<Hop>();
      if (hop == Hop::kBye) peer.bye = true;
      if (hop == Hop::kLost) receive_loss(in);
      if (hop != Hop::kHeartbeat && hop != Hop::kLost && hop < Hop::kBye) {
        receive(peer, hop, in.rest());
      }
      if (hop > Hop::kBye) throw Error(ErrorCode::kInternal, "unknown message between hosts");
    });
  } catch (const Altered&) {
    lost_({peer.link.rank(), rank_,
           "a control message was altered on its way: somebody on the network between the hosts "
           "changes what they send"});
    spread_loss();  // to the other end too, before the connection is closed
    return false;
  } catch (const std::exception& error) {
    peer.broken = error.what();  // not what a leader says: as good as gone
    return false;
  }
}

void Relay::receive_loss(Reader& in) {
  const auto rank = in.get<int32_t>();
  const auto reporter = in.get<int32_t>();
  if (rank < 0 || rank >= hosts_.size() || reporter < -1 || reporter >= hosts_.size()) {
    throw Error(ErrorCode::kInternal, "a loss of a rank that does not exist");
  }
  std::string reason = in.get_string();
  lost_({rank, reporter, std::move(reason),
         in.get<bool>() ? ErrorCode::kTimeout : ErrorCode::kPeerLost});
}

void Relay::check_silence(int64_t now_ns) {
  if (timeout_ns_ <= 0 || may_leave()) return;
  for (Peer& peer : peers_) {
    const bool counts = peer.link.fd() >= 0 && peer.heard_ns > 0 && !peer.bye;
    if (!counts || now_ns - peer.heard_ns <= timeout_ns_) continue;
    peer.link.close();
    lost_({peer.link.rank(), -1,
           "the leader of its host was silent for " + seconds_text(timeout_ns_) +
               ": it is stopped or overloaded, or the network between is cut "
               "(SIRTAKI_HOST_TIMEOUT_SECONDS sets how long is too long)"});
  }
}

/// Tells the other hosts why this one's world ended.
void Relay::spread_loss() {
  if (told_ || !doorbell_.aborted()) return;
  told_ = true;
  const Loss loss = region_->loss();
  std::string body;
  Writer(body)
      .put(loss.rank)
      .put(loss.reporter)
      .put_string(loss.reason)
      .put(loss.code == ErrorCode::kTimeout);
  send_to_all(Hop::kLost, body);
}

void Relay::send_to_all(Hop hop, std::string_view body) {
  const std::string message = framed(hop, body);
  for (Peer& peer : peers_) {
    if (peer.link.fd() >= 0 && !peer.bye) peer.link.send(message);
  }
}

bool Relay::all_local_closed() const {
  for (int place = 0; place < region_->ranks(); ++place) {
    if (region_->rank(place).bye.load(std::memory_order_acquire) == 0) return false;
  }
  return true;
}

bool Relay::all_below_left() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.under.size() == 0 || peer.bye; });
}

bool Relay::is_under(const Peer& peer, int rank) const {
  if (rank < 0 || rank >= hosts_.size()) return false;
  const int host = hosts_.host_of(rank);
  return host >= peer.under.begin && host < peer.under.end;
}

void Relay::require_under(const Peer& peer, int rank) const {
  if (is_under(peer, rank)) return;
  throw Error(ErrorCode::kInternal, "what rank " + std::to_string(rank) + " of its host does");
}

void Relay::send_below(const Recipients& to, std::string_view message) {
  for (Peer& peer : peers_) {
    if (peer.link.fd() < 0 || to.members.of_hosts(peer.under).size() == 0) continue;
    std::vector<int32_t> there;
    std::copy_if(to.ranks.begin(), to.ranks.end(), std::back_inserter(there),
                 [&](int rank) { return is_under(peer, rank); });
    if (there.empty() && !to.ranks.empty()) continue;
    std::string text;
    Writer(text).put(Hop::kDown).put(to.set).put_vector(there);
    text.append(message);
    peer.link.send(text);
  }
  wake_for_backlog();
}

/// The thread sends what the sockets do not take at once.
void Relay::wake_for_backlog() const {
  const auto waits = [](const Peer& peer) { return peer.link.has_backlog(); };
  if (std::any_of(peers_.begin(), peers_.end(), waits)) wake();
}

void Relay::ask_below(const std::vector<int32_t>& ranks) {
  for (Peer& peer : peers_) {
    std::vector<int32_t> there;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(there),
                 [&](int rank) { return is_under(peer, rank); });
    if (there.empty() || peer.link.fd() < 0) continue;
    std::string text;
    Writer(text).put(Hop::kAsk).put_vector(there);
    peer.link.send(text);
  }
  wake_for_backlog();
}

Reporters Relay::read_reporters(const Peer& from, Reader& in) const {
  Reporters reporters{in.get_vector<int32_t>(), in.get_vector<HostRange>()};
  if (reporters.ranks.empty() && reporters.hosts.empty()) {
    throw Error(ErrorCode::kInternal, "a report of nobody");
  }
  for (const int rank : reporters.ranks) {
    if (is_under(from, rank)) continue;
    throw Error(ErrorCode::kInternal, "a report of rank " + std::to_string(rank) + " of its host");
  }
  for (const HostRange& hosts : reporters.hosts) {
    if (hosts.begin >= from.under.begin && hosts.begin < hosts.end && hosts.end <= from.under.end) {
      continue;
    }
    throw Error(ErrorCode::kInternal, "a report of hosts that are not below it");
  }
  return reporters;
}

// ---- Rank 0 ----

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
    const auto rank = in.get<int32_t>();
    require_under(from, rank);
    const auto blocked_seconds = in.get<double>();
    answers_[rank] = {in.get_string(), blocked_seconds};
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
  const bool urgent = kind == Up::kFlushed || kind == Up::kShutdown || kind == Up::kMeet;
  if (urgent) region_->leader().urgent.store(1);
  doorbell_.ring(0, urgent ? kControl : kRequest);
}

bool SequencerRelay::may_leave() const { return all_local_closed() && all_below_left(); }

// ---- Leaders ----

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
    if (link.fd() >= 0) link.queue(text);
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
  for (Reader in(body); !in.empty(); in.get_string()) {
    require_under(from, in.get<int32_t>());
    in.get<double>();
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
    const RankState state = state_of(*region_, hosts_, rank, now_ns());
    out.put(rank).put(state.blocked_seconds).put_string(state.text);
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
