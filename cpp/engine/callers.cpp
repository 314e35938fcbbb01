#include "engine/callers.h"

#include <utility>

#include "engine/engine.h"

namespace sirtaki {
namespace {

/// The wait before other ranks are notified: most waits are short.
constexpr int64_t kTellNs = 1'000'000'000;

}  // namespace

Callers& Callers::of_process() {
  // Never destroyed: engines may outlive static objects, and a child's copy may be locked.
  static std::atomic<Callers*> callers{new Callers};
  Callers* found = callers.load(std::memory_order_acquire);
  if (found->process_.forked()) [[unlikely]] {
    auto* own = new Callers;
    if (callers.compare_exchange_strong(found, own)) return *own;
    delete own;  // another thread was first
  }
  return *found;
}

void Callers::join(Engine& engine) {
  const std::lock_guard lock(mutex_);
  engines_.push_back(&engine);
  ended_.reset();  // an earlier world's error does not apply
}

void Callers::leave(Engine& engine) {
  const std::lock_guard lock(mutex_);
  std::erase(engines_, &engine);
}

void Callers::note_other(const void* caller) {
  const void* nobody = nullptr;
  if (!first_.compare_exchange_strong(nobody, caller)) several_.store(true);
}

void Callers::end(const Error& error) {
  const std::lock_guard lock(mutex_);
  ended_ = error;
}

void Callers::check() const {
  const std::lock_guard lock(mutex_);
  if (ended_) throw *ended_;
}

void Callers::check_failed() const {
  check();
  const std::lock_guard lock(mutex_);
  for (const Engine* engine : engines_) {
    // The engine's thread may not have noticed the end yet.
    if (const std::optional<Error> error = engine->deadlock()) throw *error;
  }
}

uint64_t Callers::moves() {
  const std::lock_guard lock(mutex_);
  uint64_t moves = 0;
  for (const Engine* engine : engines_) moves += engine->moves();
  return moves;
}

void Callers::tell(Engine& blocked_in, const Handle& handle, int64_t blocked_ns, int64_t now_ns) {
  FlightRecord::Words what{};
  if (blocked_ns > 0) what = blocked_in.words_of(handle, now_ns - blocked_ns);
  const int64_t told_ns = only_one() ? blocked_ns : -blocked_ns;
  const std::lock_guard lock(mutex_);
  for (Engine* engine : engines_) engine->tell_blocked(told_ns, now_ns, what);
}

Callers::Wait::~Wait() {
  if (told_) of_process().tell(engine_, handle_, 0, blocked_.looked_ns());
}

void Callers::Wait::goes_on(int64_t now_ns) {
  constexpr int64_t kLongestNs = 1'000'000'000;
  Callers& callers = of_process();
  callers.check();
  const uint64_t moves = callers.moves();
  const bool still = std::exchange(moves_, moves) == moves;
  const int64_t blocked_ns = blocked_.look(still, now_ns, kLongestNs);
  if (blocked_ns < kTellNs && !told_) return;
  callers.tell(engine_, handle_, blocked_ns, now_ns);
  told_ = true;
}

}  // namespace sirtaki
