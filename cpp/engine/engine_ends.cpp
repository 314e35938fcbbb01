#include <unistd.h>

#include "engine/engine.h"

// How a rank leaves its world, and what happens when the world is lost.
namespace sirtaki {
void Engine::shutdown() {
  if (closing_.exchange(true)) return;
  if (getpid() != process_) return abandon();
  log_.write(LogLevel::kInfo, "leaves the world");
  if (size_ > 1) {
    say_goodbye();
    wait(closed_);
    stop_.store(true);
    endpoint_.doorbell.ring_engine();
    thread_.join();
    region_->rank(place_).bye.store(1, std::memory_order_release);
    tell_relay();
    if (relay_ != nullptr) relay_->await_farewell();
    callbacks_.run();
  }
  watcher_.reset();
  stop_timeline();
}

void Engine::say_goodbye() {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  std::string message;
  Writer(message).put(Up::kShutdown);
  if (rank_ == 0) {
    collect_requests();
    sequencer_->receive(0, message, now_ns());
  } else {
    control_.send_up(message, true);
  }
}

/// A forked child has copies of the objects but none of the threads, so their destructors must not
/// run.
void Engine::abandon() {
  new std::thread(std::move(thread_));
  new std::shared_ptr<Timeline>(std::move(timeline_));
  (void)watcher_.release();
  (void)relay_.release();
}

/// The driver cannot go on, but its peers may wait for its part in the same operation.
void Engine::give_up(const Error& error) {
  abort_world(rank_);
  fail_all(Error(error.code, rank_text(rank_) + ": " + error.what() + phase()));
}

void Engine::fail_all(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!ended_) ended_ = error;
  for (Item& item : runner_.drop()) {
    if (item.entry != nullptr) complete(*item.entry, *ended_);
  }
  for (auto& [key, entry] : entries_) complete(*entry, *ended_);
  entries_.clear();
  busy_.clear();
  closed_.complete();
}

void Engine::peer_lost(int rank) {
  const auto& bye = region_->rank(hosts_.place_of(rank)).bye;
  if (bye.load(std::memory_order_acquire) == 0) endpoint_.doorbell.abort(rank);
}

/// Makes the relay of this host look at what has changed.
void Engine::tell_relay() const {
  if (hosts_.hosts() == 1 || watcher_ == nullptr) return;
  if (place_ == 0) return watcher_->wake();
  watcher_->wake_peers();
}

/// Ends the world on all hosts.
void Engine::abort_world(int rank) {
  endpoint_.doorbell.abort(rank);
  tell_relay();
}

Error Engine::lost_error(int lost_rank) {
  return Error(ErrorCode::kPeerLost, rank_text(rank_) + ": lost peer " + rank_text(lost_rank) +
                                         phase() + ": its process ended without shutdown(), " +
                                         (hosts_.hosts() > 1 ? "its host does not answer, " : "") +
                                         "or it could not go on; look for its own error message");
}

/// What the engine is doing, to be put behind a message.
std::string Engine::phase() {
  if (!runner_.flights().empty()) return " during " + runner_.flights().front()->describe();
  const std::lock_guard lock(mutex_);
  if (entries_.empty()) return " while no operation was running";
  const Entry& entry = *entries_.begin()->second;
  std::string text = " before all ranks had submitted " + describe(entry.request, entry.ordinal);
  if (entries_.size() > 1) text += " and " + std::to_string(entries_.size() - 1) + " more";
  return text;
}

}  // namespace sirtaki
