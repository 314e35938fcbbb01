#include "engine/control/relay.h"

#include <algorithm>

#include "engine/options.h"

namespace sirtaki {
namespace {

constexpr int64_t kHeartbeatNs = 1'000'000'000;
constexpr int64_t kMoreForFirst = 3;  ///< so many times its usual time

}  // namespace

std::string framed(Hop hop, std::string_view body) {
  std::string message(1, static_cast<char>(hop));
  message.append(body);
  return message;
}

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

bool Relay::left() {
  const std::lock_guard lock(mutex_);
  return may_leave() || told_;
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
    if (peer.link.open() && !receive_from(peer) && !peer.broken.empty()) wake();
  }
}

int Relay::prepare(Sleep& sleep) {
  const std::lock_guard lock(mutex_);
  const Round round(*this);
  // Silence is measured from here: had this process been stopped, what came meanwhile is read
  // before its absence is judged.
  polled_ns_ = now_ns();
  tell(polled_ns_);
  for (Peer& peer : peers_) {
    peer.polled_from = sleep.polled.size();
    peer.link.prepare(sleep);
    peer.polled_to = sleep.polled.size();
  }
  region_->leader().relay.park(kRequest);
  if (has_news()) return 0;
  const int64_t left_ns = std::max<int64_t>(0, sleeps_until_ - polled_ns_);
  return static_cast<int>((left_ns + 999'999) / 1'000'000);
}

void Relay::serve(const Sleep& sleep) {
  const std::lock_guard lock(mutex_);
  const Round round(*this);
  region_->leader().relay.unpark();
  for (Peer& peer : peers_) {
    bool news = peer.polled_from == peer.polled_to || !peer.broken.empty();
    for (size_t i = peer.polled_from; i < peer.polled_to; ++i) news |= sleep.polled[i].revents != 0;
    if (news) hear(peer);
  }
  check_silence(polled_ns_);
}

int64_t Relay::step(int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const Round round(*this);
  for (Peer& peer : peers_) hear(peer);
  check_silence(now_ns);
  tell(now_ns);
  return has_news() ? now_ns : sleeps_until_;
}

/// Takes what has come from there, and sends what waits.
void Relay::hear(Peer& peer) {
  if (!peer.link.open()) return;
  peer.link.flush();
  if (receive_from(peer)) return;
  peer.link.close();
  if (peer.bye || may_leave()) return;
  lost_({peer.link.rank(), -1,
         peer.broken.empty() ? "its connection to this host was closed"
                             : "it sent what no leader of a host sends: " + peer.broken});
}

/// Passes on what this host has to say.
void Relay::tell(int64_t now_ns) {
  for (Peer& peer : peers_) {
    if (peer.link.has_early()) receive_from(peer);  // no socket tells of it
  }
  spread_loss();
  int64_t until = HostAggregator::kNever;
  try {
    until = work(now_ns);
  } catch (const std::exception&) {
    doorbell_.abort(rank_);
  }
  spread_loss();  // what this round found
  if (now_ns - beaten_ns_ >= heartbeat_ns_) {
    send_to_all(Hop::kHeartbeat);
    beaten_ns_ = now_ns;
  }
  sleeps_until_ = std::min(until, beaten_ns_ + heartbeat_ns_);
  if (may_leave() || told_) left_.notify_all();
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
    // Its engine may begin later than this one.
    if (peer.heard_ns == 0) peer.heard_ns = now_ns + kMoreForFirst * timeout_ns_;
    const bool counts = peer.link.open() && !peer.bye;
    if (!counts || now_ns - peer.heard_ns <= timeout_ns_) continue;
    lost_({peer.link.rank(), -1,
           "the leader of its host was silent for " +
               seconds_text(static_cast<double>(timeout_ns_) * 1e-9) +
               ": it is stopped or overloaded, or the network between is cut "
               "(SIRTAKI_HOST_TIMEOUT_SECONDS sets how long is too long)"});
    spread_loss();  // to the silent one too: it may go on one day
    peer.link.close();
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
    if (!peer.bye) peer.link.send(message);
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
    if (!peer.link.open() || to.members.of_hosts(peer.under).size() == 0) continue;
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
    if (there.empty() || !peer.link.open()) continue;
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

}  // namespace sirtaki
