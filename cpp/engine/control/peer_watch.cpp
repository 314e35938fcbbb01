#include "engine/control/peer_watch.h"

#include <utility>

namespace sirtaki {

PeerWatch::PeerWatch(RankContext& context) : context_(context) {
  const HostMap& hosts = context.hosts;
  if (hosts.hosts() == 1) return;
  if (context.place == 0) {
    relay_ = std::make_unique<Relay>(context);
    relay_->set_wake([this] { tell_relay(); });
    carrier_.relay = relay_.get();
  } else if (hosts.host_of(context.rank) != 0) {
    carrier_.wake = [this] { tell_relay(); };
  }
}

void PeerWatch::start(std::function<bool(int rank)> lost) {
  const std::span<const Link> local = context_.links.local;
  if (local.empty() && relay_ == nullptr) return;
  watcher_ = std::make_unique<Watcher>(local, std::move(lost), relay_.get());
  if (context_.options.own_threads) watcher_->start();
}

void PeerWatch::abort(const Loss& loss) const {
  context_.doorbell.abort(loss);
  tell_relay();
}

void PeerWatch::tell_relay() const {
  if (context_.hosts.hosts() == 1 || watcher_ == nullptr) return;
  if (context_.place == 0) return watcher_->wake();
  watcher_->wake_peers();
}

void PeerWatch::stop_unless_relay() {
  if (watcher_ != nullptr && relay_ == nullptr) watcher_->stop();
}

void PeerWatch::await_farewell() {
  tell_relay();
  if (relay_ != nullptr) relay_->await_farewell();
}

void PeerWatch::abandon() {
  (void)watcher_.release();
  (void)relay_.release();
}

}  // namespace sirtaki
