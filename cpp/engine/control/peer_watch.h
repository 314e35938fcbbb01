#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/control/relay.h"
#include "engine/rank_context.h"
#include "transport/network/watcher.h"

namespace sirtaki {

/// Detects the end of peers and tells them that the world ends: a thread that sleeps until a
/// process of this host ends and, on the leader of one of several hosts, runs the relay.
class PeerWatch {
 public:
  explicit PeerWatch(RankContext& context) : context_(context) {
    if (context.hosts.hosts() > 1 && context.place == 0) {
      relay_ = std::make_unique<Relay>(context, [this] { tell_relay(); });
    }
  }

  /// Carries control messages between hosts; null except on leaders where there are several hosts.
  Relay* relay() const { return relay_.get(); }
  /// Starts to watch; the thread calls `lost` as Watcher does.
  void start(std::function<bool(int rank)> lost) {
    const std::span<const Link> local = context_.links.local;
    const int heartbeat = context_.options.heartbeat;
    if (local.empty() && relay_ == nullptr && heartbeat < 0) return;
    watcher_ = std::make_unique<Watcher>(local, std::move(lost), relay_.get(), heartbeat);
    if (context_.options.own_threads) watcher_->start();
  }

  /// For a scheduler in place of the thread: one check, and one Relay::step.
  int64_t step(int64_t now_ns) const {
    if (watcher_ != nullptr) watcher_->look(0);
    return relay_ ? relay_->step(now_ns) : kForever;
  }

  /// Ends the world on this host and, through its leader, on the others. Keeps the first reason.
  void abort(const Loss& loss) const {
    context_.doorbell.abort(loss);
    tell_relay();
  }
  /// Makes the relay of this host check for changes.
  void tell_relay() const {
    if (context_.hosts.hosts() == 1 || watcher_ == nullptr) return;
    if (context_.place == 0) return watcher_->wake();
    watcher_->wake_peers();
  }

  /// Lets the thread end unless other hosts need it.
  void stop_unless_relay() {
    if (watcher_ != nullptr && relay_ == nullptr) watcher_->stop();
  }
  /// Whether no other host needs this one.
  bool left() { return relay_ == nullptr || relay_->left(); }
  /// Returns once none does.
  void await_farewell() {
    tell_relay();
    if (relay_ != nullptr) relay_->await_farewell();
  }
  void stop() {
    if (watcher_ != nullptr) watcher_->end();  // the thread itself uses `watcher_`
    watcher_.reset();
  }

 private:
  RankContext& context_;
  std::unique_ptr<Relay> relay_;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace sirtaki
