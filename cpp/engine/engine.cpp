#include "engine/engine.h"

#include <sched.h>

#include <algorithm>

#include "backends/native.h"
#include "backends/single.h"
#include "engine/driving.h"
#include "engine/requests/checks.h"
#include "engine/requests/kinds.h"
#include "transport/heaps/own_heap.h"

namespace sirtaki {
namespace {

constexpr int64_t kStallCheckNs = 1'000'000'000;

}  // namespace

std::unique_ptr<Backend> Engine::make_native(Endpoint& endpoint, const HostMap& hosts,
                                             Connect connect) {
  if (hosts.size() == 1) return std::make_unique<SingleBackend>();
  return std::make_unique<NativeBackend>(endpoint, hosts, std::move(connect));
}

Engine::Engine(int rank, HostMap hosts, std::shared_ptr<Region> region, LinkSet links,
               Connect connect, const EngineOptions& options, const MakeBackend& make_backend)
    : hosts_(std::move(hosts)),
      rank_(rank),
      place_(hosts_.place_of(rank)),
      size_(hosts_.size()),
      options_(options),
      why_broken_(connect.why_broken),
      log_("sirtaki: " + rank_text(rank), options.log_level, options.log_time),
      callbacks_(log_),
      region_(region),
      links_(std::move(links)),
      endpoint_(region, rank, place_, {options.caller_spin_ns, options.engine_spin_ns},
                options.sockets_per_peer, {.direct_hosts = options.direct_hosts}, links_.heaps,
                options.silent_seconds),
      backend_(make_backend(endpoint_, hosts_, connect)),
      sets_(size_),
      executor_(*backend_, sets_, mutex_, *launches_, rank),
      recorder_(region_->records(place_)),
      runner_(executor_, runner_events()),
      pairs_(endpoint_, hosts_, std::move(connect), options.single_copy, pairs_events()),
      negotiation_(rank, sets_, negotiation_events()),
      control_(hosts_, rank, region, endpoint_.doorbell),
      states_(hosts_, region),
      chunk_bytes_(static_cast<size_t>(options.chunk_bytes)) {
  if (rank_ == 0) {
    EngineOptions sequencing = options;
    // Waits between hosts end in sleep whoever computes.
    sequencing.adapts_chunk &= hosts_.hosts() == 1;
    sequencer_ = std::make_unique<Sequencer>(
        hosts_, sequencing, [this](const Recipients& to, std::string_view message) {
          control_.send_down(to, message);
        });
  }
  log_start();
  if (size_ == 1) return;  // a submitting thread does everything itself
  if (hosts_.hosts() > 1) join_hosts();
  if (!links_.local.empty() || relay_ != nullptr) {
    watcher_ = std::make_unique<Watcher>(
        links_.local, [this](int lost) { peer_lost(lost); }, relay_.get());
  }
  if (sequencer_ != nullptr) sequencer_->announce_settings();
  Callers::of_process().join(*this);
  thread_ = std::thread([this] { engine_loop(); });
}

Engine::~Engine() { shutdown(); }

void Engine::join_hosts() {
  const double timeout = options_.host_timeout_seconds;
  const Relay::Lost lost = [this](const Loss& loss) { endpoint_.doorbell.abort(loss); };
  Control::Relays relays;
  if (rank_ == 0) {
    auto relay = std::make_unique<SequencerRelay>(hosts_, rank_, region_, endpoint_.doorbell,
                                                  links_.hosts, timeout, lost);
    relays.sequencer = relay.get();
    states_.use(relay.get());
    relay_ = std::move(relay);
  } else if (place_ == 0) {
    auto relay = std::make_unique<LeaderRelay>(hosts_, rank_, region_, endpoint_.doorbell,
                                               links_.hosts, timeout, lost);
    relays.leader = relay.get();
    relay_ = std::move(relay);
  } else if (hosts_.host_of(rank_) != 0) {
    relays.wake = [this] { tell_relay(); };
  }
  control_.use(std::move(relays));
  if (relay_ != nullptr) relay_->set_wake([this] { watcher_->wake(); });
}

// ---- Submitting ----

void Engine::check_open() const {
  if (ended_) throw *ended_;
}

std::shared_ptr<Handle> Engine::submit(Submission submission) {
  if (size_ == 1) return submit_and_wait(std::move(submission));
  std::shared_ptr<Handle> handle = enqueue(std::move(submission));
  // What rank 0 sent to itself; other ranks are rung by rank 0.
  if (control_.has_down()) endpoint_.doorbell.ring(place_, kControl);
  return handle;
}

std::shared_ptr<Handle> Engine::submit_and_wait(Submission submission, int64_t limit_ns) {
  require_own_process();
  std::shared_ptr<Handle> handle;
  if (take_role()) {
    const Role role(*this);
    endpoint_.doorbell.wake_up();
    handle = enqueue(std::move(submission));
    drive(true, [&] { return handle->done() || now_ns() >= limit_ns; });
  } else {
    handle = enqueue(std::move(submission));
    if (control_.has_down()) endpoint_.doorbell.ring(place_, kControl);
  }
  wait(*handle, limit_ns);
  return handle;
}

std::shared_ptr<Handle> Engine::enqueue(Submission submission) {
  require_own_process();
  Callers::of_process().note_call();
  if (const std::string why = malformed(submission.request); !why.empty()) {
    throw Error(ErrorCode::kInvalid, rank_text(rank_) + " asks for what cannot be: " + why);
  }
  auto entry = std::make_unique<Entry>();
  entry->inputs = std::move(submission.inputs);
  entry->outputs = std::move(submission.outputs);
  entry->allocate = std::move(submission.allocate);
  entry->number = submission.number;
  entry->handle = submission.handle ? std::move(submission.handle) : std::make_shared<Handle>();
  Writer writer(entry->encoded);
  submission.request.encode(writer);
  require_frame_size(entry->encoded.size() + sizeof(Up));
  entry->request = std::move(submission.request);
  const Request& asked = entry->request;
  std::shared_ptr<Handle> handle = entry->handle;
  {
    const std::lock_guard lock(mutex_);
    check_open();
    if (!sets_.contains(asked.set) || sets_.index(asked.set, rank_) < 0) {
      throw Error(ErrorCode::kInvalid, rank_text(rank_) + " is not a member of process set " +
                                           std::to_string(asked.set));
    }
    require_splits(asked);
    Entry& added = negotiation_.add(std::move(entry));
    added.record = recorder_.submitted(added.request, added.ordinal);
    try {
      announce(added);
    } catch (const std::exception& error) {
      withdraw(added, error.what());
      throw;
    }
  }
  return handle;
}

/// Before anybody is told: only this rank could find it.
void Engine::require_splits(const Request& asked) const {
  if (asked.kind != Kind::kAlltoall || asked.shapes[0].empty()) return;
  const std::string why = wrong_splits(asked, sets_.ranks(asked.set).size());
  if (why.empty()) return;
  throw Error(ErrorCode::kInvalid, rank_text(rank_) + " asks for what cannot be: " + why);
}

/// Undoes what could not be announced, for its memory goes with the caller.
void Engine::withdraw(const Entry& entry, const std::string& why) {
  recorder_.ended(entry.record, false);
  negotiation_.withdraw(entry);
  // A ring takes a message whole or not at all; sequencer and aggregator may know half of it.
  if (place_ != 0) return;
  lose(rank_, "it could not announce an operation: " + why);
  tell_relay();
}

void Engine::announce(const Entry& entry) {
  const std::string message = negotiation_.announcement(entry);
  if (rank_ == 0) {
    sequence_own(message);
  } else {
    control_.send_up(message, false);
  }
}

void Engine::sequence_own(std::string_view message) {
  sequencer_->receive(0, message, now_ns());
  // From here on a peer's request may be the last one missing, so a dozing engine must hear it.
  if (sequencer_->expects_peers()) endpoint_.doorbell.hear_requests();
  collect_requests();
  dispatch();
}

void Engine::collect_requests() {
  const int64_t now = now_ns();
  const std::vector<int>& local = hosts_.ranks_on(0);
  control_.forget_urgent();
  for (int place = 1; place < region_->ranks(); ++place) {
    const int rank = local[static_cast<size_t>(place)];
    receive_up(rank, [&] {
      control_.receive_up(
          place, [&](std::string_view message) { sequencer_->receive(rank, message, now); });
    });
  }
  control_.receive_hosts([&](const Reporters& from, std::string_view message) {
    const int first = from.hosts.empty() ? from.ranks.at(0) : hosts_.leader_of(from.hosts[0].begin);
    receive_up(first, [&] { sequencer_->receive(from, message, now); });
  });
}

/// A rank that says what no rank says is as good as lost.
template <class Receive>
void Engine::receive_up(int rank, Receive receive) {
  if (endpoint_.doorbell.aborted()) return;
  try {
    receive();
  } catch (const Error& error) {
    lose(rank, std::string("it sent what no rank sends: ") + error.what());
    tell_relay();
  }
}

/// Batches without rank 0 go out at once; one with it waits for the one before in its lane, because
/// what becomes ready meanwhile can go with it.
void Engine::dispatch() {
  const auto may_go = [this](int32_t set) {
    return std::find(busy_.begin(), busy_.end(), backend_->lane_of(set)) == busy_.end();
  };
  while (!control_.has_down() && !control_.has_backlog() &&
         sequencer_->dispatch(now_ns(), may_go)) {
  }
}

// ---- Making progress ----

bool Engine::take_role() {
  if (size_ == 1) {
    driver_.lock();  // there is no engine thread that would do this one's work meanwhile
    return true;
  }
  return try_role();
}

bool Engine::try_role() {
  if (!driver_.try_lock()) return false;
  if (!stop_.load()) return true;
  driver_.unlock();  // the region may be another engine's
  return false;
}

bool Engine::wait(Handle& handle, int64_t limit_ns) {
  if (!handle.done()) require_own_process();
  const auto late = [&] { return limit_ns != kForever && now_ns() >= limit_ns; };
  std::optional<Sleepers::Entry> sleeper;
  while (!handle.done() && !late()) {
    const Parking::Ticket ticket = handle.ticket();
    if (try_role()) {
      sleeper.reset();
      const Role role(*this);
      drive(true, [&] { return handle.done() || late(); });
    } else if (!sleeper) {
      sleeper.emplace(sleepers_, handle);  // who drove may have left before
    } else {
      handle.sleep(ticket, limit_ns == kForever ? -1 : std::max<int64_t>(1, limit_ns - now_ns()));
    }
    callbacks_.run();
  }
  sleeper.reset();
  callbacks_.run();
  return handle.done();
}

void Engine::with_backend(const std::function<void(Backend&, const Doorbell&)>& work) {
  require_own_process();
  driver_.lock();
  if (stop_.load()) {
    driver_.unlock();
    throw Error(ErrorCode::kInternal, "the world has been shut down");
  }
  const Role role(*this);
  endpoint_.doorbell.drive_as_caller(true);
  endpoint_.doorbell.wake_up();
  work(*backend_, endpoint_.doorbell);
}

/// Does what can be done now without waiting for news; false if there was nothing.
bool Engine::progress() {
  {
    const std::lock_guard lock(mutex_);
    control_.flush();
    if (sequencer_ != nullptr) {
      collect_requests();
      dispatch();
    }
    control_.receive_down([this](std::string_view message) { negotiation_.receive(message); });
  }
  if (runner_.advance()) return true;
  if (control_.has_backlog()) sched_yield();  // to whom the ring belongs
  return false;
}

bool Engine::has_work() {
  constexpr uint32_t kSeldom = 16;  // asking sockets takes longer than looking into memory
  if (relay_ != nullptr && ++looks_ % kSeldom == 0) relay_->look();
  return control_.has_down() || control_.has_up() || control_.has_backlog() || pairs_.is_ready();
}

/// Lets the engine thread hear news from now on.
Engine::Rest Engine::rest() {
  const std::lock_guard lock(mutex_);
  const bool sequences = sequencer_ != nullptr;
  Sleep sleep;
  pairs_.prepare(sleep);
  const Rest rest{!runner_.idle() || pairs_.busy() || (sequences && sequencer_->has_ready()),
                  !sequences || sequencer_->expects_peers(), sleep.messages != 0, !ended_};
  sleep.messages |= rest.hears_requests ? kControl | kRequest : kControl;
  endpoint_.doorbell.rest_engine(sleep.messages);
  return rest;
}

/// What came before the engine thread could hear it.
bool Engine::has_news(const Rest& rest) {
  // What is left in the rings of a lost world will not be run, but who waits must be told.
  if (endpoint_.doorbell.aborted()) return rest.expects_end;
  return control_.has_down() || control_.has_backlog() || control_.has_urgent() ||
         pairs_.has_posted() || (rest.hears_requests && control_.has_up()) ||
         (rest.hears_pairs && pairs_.has_news());
}

Sleep Engine::sleep_for() {
  Sleep sleep;
  sleep.messages = kControl | kRequest;
  runner_.prepare(sleep);
  pairs_.prepare(sleep);
  note_waits();
  return sleep;
}

Runner::Events Engine::runner_events() {
  return {[this](Flight& flight) { flight_begun(flight); },
          [this](Flight& flight) { flight_goes_on(flight); },
          [this](Flight& flight, const std::optional<Error>& error) { flight_done(flight, error); },
          [this] { close(); }};
}

void Engine::complete(const Entry& entry, std::optional<Error> error) {
  if (!error && !entry.no_memory.empty()) {
    error =
        Error(ErrorCode::kInvalid, describe(entry.request, entry.ordinal) + ": " + entry.no_memory);
  }
  recorder_.ended(entry.record, !error);
  if (entry.handle->complete(error) && entry.handle->calls_back()) callbacks_.add(entry.handle);
}

void Engine::end(const Item& item, const std::optional<Error>& error) {
  if (item.entry != nullptr) return complete(*item.entry, error);
  recorder_.ended(item.record, !error);  // this rank has joined
}

void Engine::flight_begun(Flight& flight) {
  for (const Item& item : flight.items) recorder_.begun(item.record);
  flight.sleeps_before = endpoint_.doorbell.data_sleeps();
  if (log_.shows(LogLevel::kTrace)) log_run(flight);
  if (const auto timeline = this->timeline()) timeline->run_begin(flight.items);
}

void Engine::flight_done(Flight& flight, const std::optional<Error>& error) {
  if (const auto timeline = this->timeline()) timeline->run_end(flight.items);
  if (flight.base().kind == Kind::kRemoveSet) pairs_.forget(flight.base().root);
  for (Item& item : flight.items) end(item, error);
  if (sequencer_ == nullptr || flight.base().launched()) return;
  const std::lock_guard lock(mutex_);
  const int lane = backend_->lane_of(flight.base().set);
  busy_.erase(std::find(busy_.begin(), busy_.end(), lane));
  sequencer_->batch_done(static_cast<int64_t>(flight.op.longest),
                         endpoint_.doorbell.data_sleeps() - flight.sleeps_before);
}

std::shared_ptr<Timeline> Engine::timeline() {
  if (!has_timeline_.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(mutex_);
  return timeline_;
}

/// Nothing more will be run: from here on nobody is hurt by this process's end.
void Engine::close() {
  end_pairs();
  region_->rank(place_).bye.store(1, std::memory_order_release);
  tell_relay();
  launches_->close();
  closed_.complete();
}

void Engine::engine_loop() {
  const int64_t timeout = sequencer_ != nullptr ? kStallCheckNs : -1;
  Parking& parking = endpoint_.doorbell.engine();
  for (;;) {
    const Parking::Ticket ticket = parking.ticket();
    if (stop_.load()) return;  // looked at after the ticket, for it is woken after it was set
    region_->rank(place_).turns.fetch_add(1, std::memory_order_relaxed);
    if (driver_.try_lock()) {
      const Role role(*this);
      const int64_t now = now_ns();
      const int64_t limit = now + options_.engine_spin_ns;
      stalls_due_ = false;
      stall_check_ns_ = now + kStallCheckNs;
      const auto idle = [&] { return !has_work() && runner_.idle() && !pairs_.busy(); };
      drive(false,
            [&] { return stalls_due_ || (idle() && (sleepers_.any() || now_ns() >= limit)); });
    }
    callbacks_.run();
    try {
      check_stalls();
    } catch (const std::exception& error) {
      give_up_beside_driver(error.what());
      callbacks_.run();
    }
    parking.sleep(ticket, timeout);
  }
}

/// As `give_up`, while another thread may drive: what that one is running only it may drop.
void Engine::give_up_beside_driver(const std::string& why) {
  const Error error(ErrorCode::kInternal, rank_text(rank_) + ": " + why);
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = error;
  }
  abort_world(rank_);
  driver_.lock();
  const Role role(*this);
  fail_all(error);
}

void Engine::check_stalls() {
  if (sequencer_ == nullptr) return;
  std::vector<std::string> warnings;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    collect_requests();
    const int64_t now = now_ns();
    warnings = sequencer_->check_stalls(now, [&](int rank) -> std::optional<std::string> {
      const std::optional<RankState> state = states_.of(rank, now);
      return state ? std::optional(state->text) : std::nullopt;
    });
    states_.ask();
    dispatch();
    // The driver may be another thread that sleeps.
    if (control_.has_down()) endpoint_.doorbell.ring(place_, kControl);
  }
  check_deadlock(now_ns());
  for (const std::string& warning : warnings) {
    log_.write(LogLevel::kWarning,
               "stalled: " + warning +
                   ". All ranks must submit the same operations; see what these ranks are doing.");
  }
}

// ---- What people see ----

void Engine::log_start() const {
  log_.write(LogLevel::kInfo,
             "joins a world of " + std::to_string(size_) + ", transport " + backend_->name());
  log_.write(LogLevel::kDebug, "fusion threshold " + std::to_string(options_.fusion_bytes) +
                                   " bytes, chunk " + std::to_string(options_.chunk_bytes) +
                                   " bytes, cache of " + std::to_string(options_.cache_capacity) +
                                   " operations, autotuning " +
                                   (options_.autotune.enabled ? "on" : "off"));
  const HeapLine heap = describe_heap();
  const LogLevel level = heap.wanted ? LogLevel::kInfo : LogLevel::kDebug;
  // Once a host: what fails there fails for all of its ranks.
  log_.write(heap.failed && place_ == 0 ? LogLevel::kWarning : level, heap.text);
}

void Engine::log_run(const Flight& flight) const {
  std::string text = "runs " + flight.describe();
  if (flight.items.size() > 1) text += " and " + std::to_string(flight.items.size() - 1) + " more";
  log_.write(LogLevel::kTrace, text);
}

std::string Engine::rank_text(int rank) const {
  const auto index = static_cast<size_t>(rank);
  const std::string text = "rank " + std::to_string(rank);
  return index < options_.hosts.size() ? text + " (" + options_.hosts[index] + ")" : text;
}

std::map<int32_t, std::vector<int>> Engine::process_sets() {
  require_own_process();
  const std::lock_guard lock(mutex_);
  return sets_.all();
}

void Engine::start_timeline(const std::string& path, bool mark_cycles) {
  require_own_process();
  const std::lock_guard lock(mutex_);
  if (sequencer_ == nullptr || timeline_ != nullptr) return;  // rank 0 writes for all
  timeline_ = std::make_shared<Timeline>(path, mark_cycles, log_);
  has_timeline_.store(true, std::memory_order_relaxed);
  sequencer_->set_timeline(timeline_.get());
}

void Engine::stop_timeline() {
  require_own_process();
  const std::lock_guard lock(mutex_);
  if (sequencer_ != nullptr) sequencer_->set_timeline(nullptr);
  timeline_.reset();
  has_timeline_.store(false, std::memory_order_relaxed);
}

}  // namespace sirtaki
