#include "engine/control/relay.h"

#include <algorithm>
#include <utility>

#include "engine/options.h"

namespace sirtaki {
namespace {

constexpr int64_t kHeartbeatNs = 1'000'000'000;
constexpr int64_t kMoreForFirst = 4;  ///< times the usual limit

}  // namespace

Relay::Relay(const RankContext& context, std::function<void()> wake)
    : context_(context),
      timeout_ns_(ns_of(context.options.host_timeout_seconds)),
      heartbeat_ns_(timeout_ns_ > 0 ? std::min(kHeartbeatNs, timeout_ns_ / 5) : kHeartbeatNs),
      here_(context.hosts.tree().under(context.hosts.host_of(context.rank))),
      wake_(std::move(wake)) {
  if (context.rank != 0) leader_.emplace(context, here_);
  for (HostLink& link : context.links.hosts) {
    const int host = context.hosts.host_of(link.rank());
    const bool above = host < here_.begin;
    peers_.push_back({link, above ? HostRange{} : context.hosts.tree().under(host)});
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
  constexpr size_t kMost = 8;  // asking more sockets takes longer than a wake-up
  if (peers_.size() > kMost) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (Peer& peer : peers_) {
    // Leaves a connection that has ended to the thread, which may be polling it.
    if (peer.link.open() && !receive_from(peer) && !peer.broken.empty()) wake();
  }
}

int64_t Relay::prepare(Sleep& sleep) {
  const std::lock_guard lock(mutex_);
  const Round round(*this);
  const int64_t now = now_ns();
  tell(now);
  for (Peer& peer : peers_) {
    peer.polled_from = sleep.polled.size();
    peer.link.prepare(sleep);
    peer.polled_to = sleep.polled.size();
  }
  context_.region->leader().relay.park(kRequest);
  if (has_news()) return 0;
  return std::max<int64_t>(0, sleeps_until_ - now);
}

void Relay::serve(const Sleep& sleep) {
  const std::lock_guard lock(mutex_);
  const Round round(*this);
  context_.region->leader().relay.unpark();
  for (Peer& peer : peers_) {
    bool news = peer.polled_from == peer.polled_to || !peer.broken.empty();
    for (size_t i = peer.polled_from; i < peer.polled_to; ++i) news |= sleep.polled[i].revents != 0;
    if (news) hear(peer);
  }
  check_silence(now_ns());
}

int64_t Relay::step(int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const Round round(*this);
  for (Peer& peer : peers_) hear(peer);
  check_silence(now_ns);
  tell(now_ns);
  return has_news() ? now_ns : sleeps_until_;
}

/// Reads what has arrived from the peer, and sends what waits.
void Relay::hear(Peer& peer) {
  if (!peer.link.open()) return;
  peer.link.flush();
  if (receive_from(peer)) return;
  peer.link.close();
  if (peer.bye || may_leave()) return;
  context_.doorbell.abort({peer.link.rank(), -1,
                           peer.broken.empty()
                               ? "its connection to this host was closed"
                               : "it sent what no leader of a host sends: " + peer.broken});
}

/// Passes on the messages of this host.
void Relay::tell(int64_t now_ns) {
  for (Peer& peer : peers_) {
    if (peer.link.has_early()) receive_from(peer);  // no socket reports these
  }
  spread_loss();
  int64_t until = HostAggregator::kNever;
  try {
    if (leader_) until = lead(now_ns);
  } catch (const std::exception&) {
    context_.doorbell.abort(context_.rank);
  }
  spread_loss();  // that this round detected
  if (now_ns - beaten_ns_ >= heartbeat_ns_) {
    send_to_all(message_of(Hop::kHeartbeat));
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
      peer.heard = peer.begun = true;
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
    context_.doorbell.abort(
        {peer.link.rank(), context_.rank,
         "a control message was altered on its way: somebody on the network between the hosts "
         "changes what they send"});
    spread_loss();  // before the connection is closed, so that the other end learns of it
    return false;
  } catch (const std::exception& error) {
    peer.broken = error.what();  // no leader sends this: it counts as gone
    return false;
  }
}

void Relay::receive_loss(Reader& in) {
  Loss loss{};
  bool timeout = false;
  in(loss.rank)(loss.reporter)(loss.reason)(timeout);
  if (loss.rank < 0 || loss.rank >= context_.hosts.size() || loss.reporter < -1 ||
      loss.reporter >= context_.hosts.size()) {
    throw Error(ErrorCode::kInternal, "a loss of a rank that does not exist");
  }
  loss.code = timeout ? ErrorCode::kTimeout : ErrorCode::kPeerLost;
  context_.doorbell.abort(loss);
}

void Relay::check_silence(int64_t now_ns) {
  if (timeout_ns_ <= 0 || may_leave()) return;
  for (Peer& peer : peers_) {
    const bool silent = !std::exchange(peer.heard, false);
    const int64_t silent_ns = peer.silence.look(silent, now_ns, timeout_ns_ / 4);
    // Its engine may begin later than this one.
    const int64_t limit_ns = (peer.begun ? 1 : kMoreForFirst) * timeout_ns_;
    if (!peer.link.open() || peer.bye || silent_ns <= limit_ns) continue;
    context_.doorbell.abort({peer.link.rank(), -1,
                             "the leader of its host was silent for " +
                                 seconds_text(static_cast<double>(timeout_ns_) * 1e-9) +
                                 ": it is stopped or overloaded, or the network between is cut "
                                 "(SIRTAKI_HOST_TIMEOUT_SECONDS sets how long is too long)"});
    spread_loss();  // to the silent host too: it may resume one day
    peer.link.close();
  }
}

/// Reports to the other hosts why this one's world ended.
void Relay::spread_loss() {
  if (told_ || !context_.doorbell.aborted()) return;
  told_ = true;
  const Loss loss = context_.region->loss();
  send_to_all(message_of(Hop::kLost, loss.rank, loss.reporter, loss.reason,
                         loss.code == ErrorCode::kTimeout));
}

void Relay::send_to_all(const std::string& message) {
  for (Peer& peer : peers_) {
    if (!peer.bye) peer.link.send(message);
  }
}

/// Whether nothing more will be run on this host and those below it.
bool Relay::all_below_closed() const {
  for (int place = 0; place < context_.region->ranks(); ++place) {
    if (context_.region->rank(place).bye.load(std::memory_order_acquire) == 0) return false;
  }
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.is_above() || peer.bye; });
}

/// Whether no other host needs this one any more.
bool Relay::may_leave() const {
  if (!leader_) return all_below_closed();
  return leader_->said_bye && !peers_[0].link.has_backlog();
}

/// Call under the lock. The thread itself checks again before it sleeps, and may run before its
/// engine can wake it.
void Relay::wake() const {
  if (wake_ && !in_round_) wake_();
}

/// The thread sends what the sockets do not accept at once.
void Relay::wake_for_backlog() const {
  const auto waits = [](const Peer& peer) { return peer.link.has_backlog(); };
  if (std::any_of(peers_.begin(), peers_.end(), waits)) wake();
}

}  // namespace sirtaki
