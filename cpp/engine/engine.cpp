#include "engine/engine.h"

#include <system_error>
#include <thread>
#include <utility>

#include "backends/native.h"
#include "backends/single.h"
#include "engine/observe/rank_state.h"
#include "transport/heaps/own_heap.h"

namespace sirtaki {

std::unique_ptr<Backend> Engine::make_native(Endpoint& endpoint, const HostMap& hosts,
                                             MakeNetwork make_network) {
  if (hosts.size() == 1) return std::make_unique<SingleBackend>();
  return std::make_unique<NativeBackend>(endpoint, hosts, std::move(make_network));
}

Engine::Engine(int rank, HostMap hosts, std::shared_ptr<Region> region, LinkSet links,
               MakeNetwork make_network, const EngineOptions& options,
               const MakeBackend& make_backend)
    : context_(rank, std::move(hosts), std::move(region), std::move(links), options),
      launches_(std::make_shared<Launches>(
          [this](uint64_t record) { context_.recorder.ended(record, true); })),
      backend_(make_backend(context_.endpoint, context_.hosts, make_network)),
      watch_(context_),
      agreement_(context_, *backend_, watch_, *this),
      runner_(context_, *backend_, agreement_, *launches_, std::move(make_network), *this),
      driver_(context_, agreement_, runner_, *this),
      ending_(context_, agreement_, runner_, driver_, watch_, *launches_) {
  log_start();
  if (size() == 1) return;  // the submitting thread does everything itself
  Callers::of_process().join(*this);
  try {
    watch_.start([this](int lost) { return ending_.lose_peer(lost); });
    agreement_.begin();
    if (options.own_threads) driver_.start();
  } catch (...) {
    watch_.stop();  // its thread uses members destroyed below
    Callers::of_process().leave(*this);
    throw;
  }
}

Engine::~Engine() { shutdown(); }

void Engine::look_around(int64_t now_ns) {
  try {
    agreement_.check_stalls(now_ns);
  } catch (const std::exception& error) {
    ending_.abort(error.what());
  }
}

// ---- Operations ----

std::shared_ptr<Handle> Engine::submit(Submission submission) {
  if (size() == 1) return submit_and_wait(std::move(submission));
  require_own_process();
  Callers::of_process().note_call();
  return tell_hooks(std::move(submission),
                    [&](Submission&& asked) { return submit_beside_driver(std::move(asked)); });
}

/// A request that is refused at once never ends, so its hooks are called here.
template <class Submit>
std::shared_ptr<Handle> Engine::tell_hooks(Submission&& submission, Submit submit) {
  if (!context_.hooks.any()) return submit(std::move(submission));
  const Request request = submission.request;
  context_.hooks.tell(Hooks::Moment::kBefore, request);
  try {
    return submit(std::move(submission));
  } catch (const Error& error) {
    context_.hooks.tell(Hooks::Moment::kAbort, request, &error);
    throw;
  }
}

std::shared_ptr<Handle> Engine::submit_beside_driver(Submission&& submission) {
  std::shared_ptr<Handle> handle = agreement_.submit(std::move(submission));
  // For decisions of rank 0 about itself; rank 0 rings the other ranks.
  if (agreement_.has_own()) context_.doorbell.ring_own(kControl);
  return handle;
}

std::shared_ptr<Handle> Engine::submit_and_wait(Submission submission, int64_t limit_ns) {
  require_own_process();
  Callers::of_process().note_call();
  std::shared_ptr<Handle> handle = tell_hooks(std::move(submission), [&](Submission&& asked) {
    return submit_as_driver(std::move(asked), limit_ns);
  });
  driver_.wait(*handle, limit_ns);
  return handle;
}

std::shared_ptr<Handle> Engine::submit_as_driver(Submission&& submission, int64_t limit_ns) {
  // A world of one rank has no engine thread that would do the work meanwhile.
  const auto role = size() == 1 ? driver_.await_role() : driver_.try_role();
  if (!role) return submit_beside_driver(std::move(submission));
  context_.doorbell.engine().unpark();
  std::shared_ptr<Handle> handle = agreement_.submit(std::move(submission));
  driver_.drive(true, limit_ns, [&] { return handle->done(); });
  return handle;
}

bool Engine::wait(Handle& handle, int64_t limit_ns) {
  if (!handle.done()) require_own_process();
  const Exposed blocked = exposed();
  return driver_.wait(handle, limit_ns);
}

void Engine::with_backend(const std::function<void(Backend&, const Doorbell&)>& work) {
  require_own_process();
  const auto role = driver_.await_role();
  if (!role) throw Error(ErrorCode::kInternal, "the world has been shut down");
  context_.doorbell.drive_as_caller(true);
  context_.doorbell.engine().unpark();
  work(*backend_, context_.doorbell);
}

// ---- Messages from one rank to another ----

std::shared_ptr<Handle> Engine::start(Transfer transfer) {
  std::shared_ptr<Handle> handle = handle_of(transfer);
  begin(std::move(transfer), [] {});
  context_.callbacks.run();
  return handle;
}

std::shared_ptr<Handle> Engine::start_and_wait(Transfer transfer, int64_t limit_ns) {
  std::shared_ptr<Handle> handle = handle_of(transfer);
  const Exposed blocked = exposed();
  begin(std::move(transfer), [&] {
    if (!handle->done()) driver_.drive(true, limit_ns, [&] { return handle->done(); });
  });
  driver_.wait(*handle, limit_ns);
  return handle;
}

void Engine::withdraw(const std::shared_ptr<Handle>& handle) {
  if (context_.mark.forked() || handle->done()) return;
  Transfer transfer;
  transfer.withdraws = true;
  transfer.owner = handle;
  begin(std::move(transfer), [] {});
  context_.callbacks.run();
}

/// The handle of a valid transfer.
std::shared_ptr<Handle> Engine::handle_of(Transfer& transfer) {
  require_own_process();
  if (const std::string why = impossible(transfer); !why.empty()) {
    throw invalid(context_.name_of(rank()) + " cannot " + sirtaki::describe(transfer) + ": " + why);
  }
  Callers::of_process().note_call();
  if (transfer.owner == nullptr) transfer.owner = std::make_shared<Handle>();
  auto handle = std::static_pointer_cast<Handle>(transfer.owner);
  handle->traced = context_.recorder.messages().begun(transfer);
  return handle;
}

/// Why there can be no such transfer; empty if there can.
std::string Engine::impossible(const Transfer& transfer) {
  const int peer = transfer.peer;
  if (transfer.tag < 0) return "a tag is not negative";
  const bool any = !transfer.sends && peer == kAnySource;
  if (!any && (peer < 0 || peer >= size())) {
    return "a world of " + std::to_string(size()) + " has no such rank";
  }
  return transfer.communicator == 0 ? "" : agreement_.not_members(transfer.communicator, peer);
}

/// Runs `then` here as the driver, or in the thread that drives now.
template <class Then>
void Engine::begin(Transfer transfer, Then then) {
  if (const auto role = driver_.try_role()) {
    driver_.guard([&] {
      runner_.pairs().add(std::move(transfer));
      context_.doorbell.check_abort();
    });
    then();
    return;
  }
  const bool posted = driver_.before_stop([&] {
    runner_.pairs().post(std::move(transfer));
    context_.doorbell.ring_own(kControl);
  });
  if (posted) return;
  runner_.refuse(transfer, Error(ErrorCode::kInternal, "the world has been shut down"));
}

// ---- The end ----

bool Engine::shutdown() {
  if (context_.mark.forked() || !ending_.begin()) return false;
  Callers::of_process().leave(*this);
  const bool together = ending_.finish();
  stop_timeline();
  return together;
}

void Engine::finish() {
  require_own_process();
  agreement_.finish();
}

std::shared_ptr<Engine> Engine::share(std::unique_ptr<Engine> engine) {
  return std::shared_ptr<Engine>(engine.release(), end_shared);
}

/// The engine's thread cannot wait for its own end, so another thread does, if necessary. A forked
/// child has copies of the objects, but the threads and connections belong to its parent.
void Engine::end_shared(Engine* engine) noexcept {
  if (engine->context_.mark.forked()) return;
  if (!engine->driver_.is_own_thread()) {
    delete engine;
    return;
  }
  try {
    std::thread([engine] { delete engine; }).detach();
  } catch (const std::system_error& error) {
    engine->context_.log.write(
        LogLevel::kError, std::string("cannot be ended, no thread to be had: ") + error.what());
  }
}

// ---- For users ----

void Engine::log_start() const {
  const Log& log = context_.log;
  const EngineOptions& options = context_.options;
  log.write(LogLevel::kInfo,
            "joins a world of " + std::to_string(size()) + ", transport " + backend_->name());
  log.write(LogLevel::kDebug, "fusion threshold " + std::to_string(options.fusion_bytes) +
                                  " bytes, chunk " + std::to_string(options.chunk_bytes) +
                                  " bytes, cache of " + std::to_string(options.cache_capacity) +
                                  " operations, autotuning " +
                                  (options.autotune.enabled ? "on" : "off"));
  const std::string& why = own_heap().why_none();
  log.write(LogLevel::kDebug, "shared arrays: " + (why.empty() ? "there is room" : "none; " + why));
}

std::map<int32_t, std::vector<int>> Engine::process_sets() {
  require_own_process();
  return agreement_.process_sets();
}

void Engine::start_timeline(const std::string& path, bool mark_cycles) {
  require_own_process();
  if (rank() != 0 || context_.timeline.get() != nullptr) return;  // rank 0 writes for all
  const auto timeline = std::make_shared<Timeline>(path, mark_cycles, context_.log);
  context_.timeline.set(timeline);
  agreement_.set_timeline(timeline.get());
}

void Engine::stop_timeline() {
  require_own_process();
  if (rank() == 0) agreement_.set_timeline(nullptr);
  context_.timeline.set(nullptr);
}

FlightRecord::Words Engine::words_of(const Handle& handle, int64_t since_ns) {
  if (handle.record != 0) return context_.recorder.words_of(handle.record);
  if (const auto role = driver_.try_role()) {
    const Transfer* message = runner_.pairs().pending_of(&handle);
    if (message != nullptr) return Recorder::words_of(*message, since_ns);
  }
  return context_.recorder.words_of(0);
}

void Engine::tell_blocked(int64_t blocked_ns, int64_t now_ns, const FlightRecord::Words& what) {
  if (context_.mark.forked()) return;  // the region belongs to the parent
  context_.region->records(context_.place)[Region::kBlockedRecord].write(0, what);
  RankBlock& block = context_.region->rank(context_.place);
  block.blocked_ns.store(blocked_ns, std::memory_order_release);
  block.blocked_at_ns.store(now_ns, std::memory_order_release);
}

const RankBlock* Engine::block_of(int rank) const {
  require_own_process();
  const HostMap& hosts = context_.hosts;
  if (hosts.host_of(rank) != hosts.host_of(context_.rank)) return nullptr;
  return &context_.region->rank(hosts.place_of(rank));
}

std::vector<Engine::Snapshot> Engine::snapshot(size_t most, int64_t limit_ns) {
  require_own_process();
  const HostMap& hosts = context_.hosts;
  std::map<int, RankState> told;
  if (hosts.hosts() > 1 && limit_ns > 0) {
    if (const auto asked = agreement_.ask()) {
      driver_.wait(*asked, limit_ns);
      told = agreement_.told();
    }
  }
  std::vector<Snapshot> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (hosts.host_of(rank) != hosts.host_of(context_.rank)) {
      ranks.push_back({rank, told[rank], {}});
      continue;
    }
    const FlightRecord* records = context_.region->records(hosts.place_of(rank));
    ranks.push_back({rank, state_of(*context_.region, hosts, rank, now_ns()),
                     read_records(records, size(), most)});
  }
  return ranks;
}

}  // namespace sirtaki
