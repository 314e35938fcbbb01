#include "engine/driver.h"

#include <algorithm>

#include "base/thread.h"

namespace sirtaki {
namespace {

constexpr int64_t kLookAroundNs = 1'000'000'000;
constexpr int64_t kLookAgainNs = 100'000'000;

}  // namespace

// ---- The driver's role ----

/// Unlocks the role if the engine has ended: another one may own the region.
bool Driver::keeps_lock() {
  if (!stopped()) return true;
  role_.unlock();
  return false;
}

/// Gives the role back, and lets the engine thread wake for news from now on.
void Driver::leave() {
  const uint32_t messages = runner_.prepare_messages();
  const bool busy = runner_.busy();
  const Agreement::Rest rest = agreement_.rest(messages);
  role_.unlock();
  // Only after the unlock: a woken engine thread would see the role taken and sleep again.
  const bool news = context_.doorbell.aborted()
                        ? rest.expects_end
                        : agreement_.has_news(rest) || runner_.has_news(messages);
  if (busy || rest.left_over || news) context_.doorbell.ring_engine();
  sleepers_.nudge();
}

bool Driver::wait(Handle& handle, int64_t limit_ns) {
  const auto late = [&] { return limit_ns != kForever && now_ns() >= limit_ns; };
  std::optional<Sleepers::Entry> sleeper;
  while (!handle.done() && !late()) {
    const Parking::Wakeups seen = handle.wakeups();
    if (const auto role = try_role()) {
      sleeper.reset();
      drive(true, limit_ns, [&] { return handle.done(); });
    } else if (!sleeper) {
      sleeper.emplace(sleepers_, handle);  // the last driver may have left before
    } else {
      handle.sleep(seen, limit_ns == kForever ? -1 : std::max<int64_t>(1, limit_ns - now_ns()));
    }
    context_.callbacks.run();
  }
  sleeper.reset();
  context_.callbacks.run();
  return handle.done();
}

// ---- Sleeping ----

Sleep Driver::sleep_for() {
  const int64_t now = now_ns();
  looks_ = looks_due(now);
  return runner_.prepare(now);
}

int64_t Driver::step(int64_t now_ns) {
  if (!role_.try_lock() || !keeps_lock()) return now_ns;
  Doorbell& doorbell = context_.doorbell;
  doorbell.drive_as_caller(false);
  doorbell.engine().unpark();
  bool more = false;
  const bool over = doorbell.aborted() && agreement_.ended();
  if (!over)
    guard([&] {
      doorbell.check_abort();
      more = round([] { return false; });
      if (more || !runner_.busy()) return;
      doorbell.engine().park(sleep_for().news());
      more = has_work();
    });
  const bool due = looks_due(now_ns);
  if (due) look_ns_ = now_ns + kLookAroundNs;
  runner_.busy() ? role_.unlock() : leave();
  if (due) listener_.look_around(now_ns);
  context_.callbacks.run();
  return more ? now_ns : now_ns + kLookAgainNs;
}

// ---- The engine's own thread ----

void Driver::start() {
  thread_ = start_thread([this] { run(); });
}

void Driver::stop() {
  {
    const std::lock_guard lock(stopping_);
    stopped_.store(true);
  }
  context_.doorbell.ring_engine();
  if (thread_.joinable()) thread_.join();
  role_.lock();                                // the driver ends now, and no other begins
  guard([&] { runner_.advance_messages(); });  // posted meanwhile: they fail
  role_.unlock();
  context_.callbacks.run();
}

void Driver::run() {
  const int64_t timeout = context_.rank == 0 ? kLookAroundNs : -1;
  Parking& parking = context_.doorbell.engine();
  for (;;) {
    const Parking::Wakeups seen = parking.wakeups();
    if (stopped()) return;  // read after the ticket, because the wake-up follows the store
    context_.region->rank(context_.place).turns.fetch_add(1, std::memory_order_relaxed);
    take_turn();
    parking.sleep(seen, timeout);
  }
}

/// Drives as long as there is work and no other thread wants to drive.
void Driver::take_turn() {
  if (const auto role = try_role()) {
    const int64_t now = now_ns();
    const int64_t limit = now + context_.options.engine_spin_ns;
    looks_ = false;
    look_ns_ = now + kLookAroundNs;
    const auto idle = [&] { return !has_work() && !runner_.busy(); };
    drive(false, kForever,
          [&] { return looks_ || (idle() && (sleepers_.any() || now_ns() >= limit)); });
  }
  context_.callbacks.run();
  if (context_.rank != 0) return;
  listener_.look_around(now_ns());
  context_.callbacks.run();
}

}  // namespace sirtaki
