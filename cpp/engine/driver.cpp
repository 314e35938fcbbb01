#include "engine/driver.h"

#include <algorithm>
#include <optional>

namespace sirtaki {
namespace {

constexpr int64_t kLookAroundNs = 1'000'000'000;
constexpr int64_t kLookAgainNs = 100'000'000;

}  // namespace

Driver::Driver(RankContext& context, Agreement& agreement, Runner& runner, Events events)
    : context_(context), agreement_(agreement), runner_(runner), events_(std::move(events)) {}

// ---- Who drives ----

bool Driver::try_role() {
  if (!role_.try_lock()) return false;
  if (!stopped()) return true;
  role_.unlock();  // the region may be another engine's
  return false;
}

bool Driver::await_role() {
  role_.lock();
  if (!stopped()) return true;
  role_.unlock();
  return false;
}

/// Gives the role back, and lets the engine thread hear news from now on.
void Driver::leave() {
  const uint32_t messages = runner_.prepare_messages();
  const bool busy = runner_.busy();
  const Agreement::Rest rest = agreement_.rest(messages);
  role_.unlock();
  // Not before: the engine thread, rung, would find the role taken and sleep again.
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
    if (try_role()) {
      sleeper.reset();
      const Role role(*this);
      drive(true, limit_ns, [&] { return handle.done(); });
    } else if (!sleeper) {
      sleeper.emplace(sleepers_, handle);  // who drove may have left before
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
  if (!try_role()) return now_ns;
  Doorbell& doorbell = context_.doorbell;
  doorbell.drive_as_caller(false);
  doorbell.wake_up();
  bool more = false;
  const bool over = doorbell.aborted() && agreement_.ended();
  if (!over)
    guard([&] {
      doorbell.check_abort();
      more = round([] { return false; });
      if (more || !runner_.busy()) return;
      doorbell.rest_engine(sleep_for().news());
      more = has_work();
    });
  const bool due = looks_due(now_ns);
  if (due) look_ns_ = now_ns + kLookAroundNs;
  runner_.busy() ? role_.unlock() : leave();
  if (due) events_.looks_around(now_ns);
  context_.callbacks.run();
  return more ? now_ns : now_ns + kLookAgainNs;
}

// ---- The engine's own thread ----

void Driver::start() {
  thread_ = std::thread([this] { run(); });
}

void Driver::stop() {
  stopped_.store(true);
  context_.doorbell.ring_engine();
  if (thread_.joinable()) thread_.join();
  role_.lock();  // whoever drives ends now, and nobody begins again
  role_.unlock();
  context_.callbacks.run();
}

void Driver::run() {
  const int64_t timeout = context_.rank == 0 ? kLookAroundNs : -1;
  Parking& parking = context_.doorbell.engine();
  for (;;) {
    const Parking::Wakeups seen = parking.wakeups();
    if (stopped()) return;  // looked at after the ticket, for it is woken after it was set
    context_.region->rank(context_.place).turns.fetch_add(1, std::memory_order_relaxed);
    take_turn();
    parking.sleep(seen, timeout);
  }
}

/// Drives for as long as there is something to do and no other thread wants to.
void Driver::take_turn() {
  if (try_role()) {
    const Role role(*this);
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
  events_.looks_around(now_ns());
  context_.callbacks.run();
}

}  // namespace sirtaki
