#include <unistd.h>

#include <system_error>

#include "engine/driving.h"

// How a rank leaves its world, and what happens when the world is lost.
namespace sirtaki {
namespace {

constexpr useconds_t kLookMicros = 1'000;

}  // namespace

bool Engine::shutdown() {
  if (closing_.exchange(true)) return false;
  if (mark_.forked()) {
    abandon();
    return false;
  }
  log_.write(LogLevel::kInfo, "leaves the world");
  Callers::of_process().leave(*this);
  if (size_ > 1) {
    say_goodbye();
    wait(closed_);
    stop_.store(true);
    endpoint_.doorbell.ring_engine();
    if (watcher_ != nullptr && relay_ == nullptr) watcher_->stop();  // both threads end at a time
    thread_.join();
    driver_.lock();  // whoever drives ends now, and nobody begins again
    driver_.unlock();
    region_->rank(place_).bye.store(1, std::memory_order_release);
    tell_relay();
    if (relay_ != nullptr) relay_->await_farewell();
  } else {
    driver_.lock();
    const Role role(*this);
    end_pairs();
    launches_->close();
  }
  callbacks_.run();
  warn_of_leftovers();
  pairs_.stop();
  watcher_.reset();
  stop_timeline();
  return size_ > 1 && !endpoint_.doorbell.aborted();
}

std::shared_ptr<Engine> Engine::share(std::unique_ptr<Engine> engine) {
  return std::shared_ptr<Engine>(engine.release(), end_shared);
}

/// The engine's thread cannot wait for its own end: another one does, while it comes to that.
void Engine::end_shared(Engine* engine) noexcept {
  if (engine->thread_.get_id() != std::this_thread::get_id()) {
    delete engine;
    return;
  }
  try {
    std::thread([engine] { delete engine; }).detach();
  } catch (const std::system_error& error) {
    engine->log_.write(LogLevel::kError,
                       std::string("cannot be ended, no thread to be had: ") + error.what());
  }
}

void Engine::abort(const std::string& why) {
  if (!stop_.load()) give_up_beside_driver(why);  // else the region may be another engine's
}

void Engine::say_goodbye() {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  std::string message;
  Writer(message).put(Up::kShutdown);
  try {
    if (rank_ == 0) {
      collect_requests();
      sequencer_->receive(0, message, now_ns());
    } else {
      control_.send_up(message, true);
    }
  } catch (const std::exception& error) {
    lose(rank_, std::string("it could not say that it leaves: ") + error.what());
    tell_relay();
  }
}

void Engine::require_own_process() const {
  if (!mark_.forked()) return;
  throw Error(ErrorCode::kInternal,
              "this process was forked from " + rank_text(rank_) +
                  " after init(), and is no rank of its own: call collectives in the process that "
                  "called init(), or start others by the 'spawn' method and let each call init()");
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
  // Not under the lock: this waits for threads that open connections, and they for Python, where
  // some thread may wait for the lock.
  const std::vector<Item> dropped = runner_.drop();
  const std::lock_guard lock(mutex_);
  if (!ended_) ended_ = error;
  for (const Item& item : dropped) end(item, *ended_);
  for (const auto& entry : negotiation_.drop()) complete(*entry, *ended_);
  busy_.clear();
  pairs_.drop(*ended_);
  launches_->close(ended_);
  closed_.complete();
}

void Engine::peer_lost(int rank) {
  constexpr const char* kWhy =
      "its process ended without shutdown(); look for its own error message";
  const auto& bye = region_->rank(hosts_.place_of(rank)).bye;
  if (bye.load(std::memory_order_acquire) == 0) {
    return lose(rank,
                std::string(kWhy) + "; last seen " + state_text(*region_, hosts_, rank, now_ns()));
  }
  // Who has left is missed by nobody, except that a leader passes on that the world has ended.
  if (rank != hosts_.leader_of(hosts_.host_of(rank))) return;
  while (!hears_end()) {
    if (!control_.has_down()) return lose(rank, kWhy);
    usleep(kLookMicros);  // what it left in the ring is read by the driver
  }
}

/// This rank has been told that nothing more will be run, and why.
bool Engine::hears_end() {
  const std::lock_guard lock(mutex_);
  return ended_.has_value() || endpoint_.doorbell.aborted();
}

/// Ends the world for this host.
void Engine::lose(int rank, const std::string& why) { endpoint_.doorbell.abort({rank, -1, why}); }

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

Error Engine::lost_error(const Loss& loss) {
  if (loss.code == ErrorCode::kTimeout) {
    const Error error(loss.code, rank_text(rank_) + ": " + loss.reason);
    // The caller may be blocked in another engine of this process.
    if (loss.reason.starts_with(kDeadlocked)) Callers::of_process().end(error);
    return error;
  }
  // Of a broken connection the others know two ends; one of them may be this rank, which lives.
  const std::string lost =
      loss.rank == rank_ ? ": given up by its peers" : ": lost peer " + rank_text(loss.rank);
  return Error(ErrorCode::kPeerLost, rank_text(rank_) + lost + phase() + ": " + cause_of(loss));
}

std::string Engine::cause_of(const Loss& loss) const {
  if (loss.reporter >= 0) {
    return "the connection between " + rank_text(loss.reporter) + " and " + rank_text(loss.rank) +
           " broke: " + loss.reason;
  }
  if (!loss.reason.empty()) return loss.reason;
  const std::string why = why_broken_ ? why_broken_(loss.rank) : "";
  if (!why.empty()) return "the connection to it broke: " + why;
  return "its process ended without shutdown(), " +
         std::string(hosts_.hosts() > 1 ? "its host was cut off, stopped or overloaded, " : "") +
         "or it could not go on; look for its own error message";
}

/// What the engine is doing, to be put behind a message.
std::string Engine::phase() {
  if (!runner_.flights().empty()) return " during " + runner_.flights().front()->describe();
  if (const std::string pending = pairs_.describe_pending(); !pending.empty()) {
    return " during " + pending;
  }
  const std::lock_guard lock(mutex_);
  const Entry* first = negotiation_.first();
  if (first == nullptr) return " while no operation was running";
  std::string text = " before all ranks had submitted " + describe(first->request, first->ordinal);
  const size_t waiting = negotiation_.waiting();
  if (waiting > 1) text += " and " + std::to_string(waiting - 1) + " more";
  return text;
}

}  // namespace sirtaki
