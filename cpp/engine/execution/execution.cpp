#include "engine/execution/execution.h"

#include <algorithm>
#include <utility>

#include "engine/observe/rank_state.h"

namespace sirtaki {

Execution::Execution(RankContext& context, Backend& backend, const ProcessSets& sets,
                     Launches& launches, Recorder& recorder, CurrentTimeline& timeline,
                     Callbacks& callbacks, MakeNetwork make_network, Events events)
    : context_(context),
      recorder_(recorder),
      timeline_(timeline),
      callbacks_(callbacks),
      events_(std::move(events)),
      data_timeout_ns_(static_cast<int64_t>(context.options.data_timeout_seconds * 1e9)),
      executor_(backend, sets, launches, recorder, context.rank, events_.sets_changed),
      runner_(executor_, runner_events()),
      pairs_(context.endpoint, context.hosts, std::move(make_network), context.options.single_copy,
             pairs_events()) {}

// ---- What happens to operations ----

Runner::Events Execution::runner_events() {
  return {[this](Flight& flight) { begun(flight); }, [this](Flight& flight) { goes_on(flight); },
          [this](Flight& flight, const std::optional<Error>& error) { done(flight, error); },
          [this] { events_.closed(); }};
}

Pairs::Events Execution::pairs_events() {
  return {[this](const std::shared_ptr<void>& owner, const Message& message,
                 const std::optional<Error>& error) { end(owner, message, error); },
          [this](int rank) { events_.invite(rank); }};
}

void Execution::end(const std::shared_ptr<void>& owner, const Message& message,
                    const std::optional<Error>& error) {
  auto handle = std::static_pointer_cast<Handle>(owner);
  handle->message = message;
  complete(std::move(handle), error);
}

void Execution::complete(const Entry& entry, std::optional<Error> error) {
  if (!error && !entry.no_memory.empty()) {
    error = invalid(sirtaki::describe(entry.request, entry.ordinal) + ": " + entry.no_memory);
  }
  recorder_.ended(entry.record, !error);
  complete(entry.handle, error);
}

void Execution::complete(std::shared_ptr<Handle> handle, const std::optional<Error>& error) {
  if (handle->complete(error) && handle->calls_back()) callbacks_.add(std::move(handle));
}

void Execution::end(const Item& item, const std::optional<Error>& error) {
  if (item.entry != nullptr) return complete(*item.entry, error);
  recorder_.ended(item.record, !error);  // this rank has joined
}

void Execution::begun(Flight& flight) {
  for (const Item& item : flight.items) recorder_.begun(item.record);
  flight.sleeps_before = context_.doorbell.data_sleeps();
  if (context_.log.shows(LogLevel::kTrace)) {
    const size_t more = flight.items.size() - 1;
    context_.log.write(
        LogLevel::kTrace,
        "runs " + flight.describe() + (more > 0 ? " and " + std::to_string(more) + " more" : ""));
  }
  if (const auto timeline = timeline_.get()) timeline->run_begin(flight.items);
}

void Execution::goes_on(Flight& flight) {
  flight.waits_since_ns = 0;
  recorder_.waits(flight.items[0].record, {}, 0);
}

void Execution::done(Flight& flight, const std::optional<Error>& error) {
  if (const auto timeline = timeline_.get()) timeline->run_end(flight.items);
  if (flight.base().kind == Kind::kRemoveSet) pairs_.forget(flight.base().root);
  const bool handed_over = flight.base().launched() && !error;
  for (const Item& item : flight.items) {
    if (!handed_over) {
      end(item, error);
    } else if (item.entry != nullptr) {
      complete(item.entry->handle, std::nullopt);
    }
  }
  events_.done(flight);
}

void Execution::fail(const std::vector<Item>& dropped, const Error& error) {
  for (const Item& item : dropped) end(item, error);
  pairs_.drop(error);
}

std::string Execution::describe() const {
  if (!runner_.flights().empty()) return runner_.flights().front()->describe();
  const Transfer* message = pairs_.pending_of(nullptr);
  return message == nullptr ? "" : sirtaki::describe(*message);
}

// ---- What operations under way wait for, and for how long they may ----

Sleep Execution::prepare(int64_t now_ns) {
  Sleep sleep;
  sleep.messages = kControl | kRequest;
  runner_.prepare(sleep);
  pairs_.prepare(sleep);
  note_waits(now_ns);
  return sleep;
}

uint32_t Execution::prepare_messages() {
  if (!pairs_.pending()) recorder_.forget_message();
  Sleep sleep;
  pairs_.prepare(sleep);
  return sleep.messages;
}

/// Called where the driver prepares to sleep, so that polling costs nothing.
void Execution::note_waits(int64_t now_ns) {
  recorder_.sleeps(pairs_.pending() ? pairs_.pending_of(nullptr) : nullptr, now_ns);
  pairs_.check_patience();
  require_messages_progress(now_ns);
  for (const auto& flight : runner_.flights()) {
    const Awaited awaited = flight->work->awaited();
    if (flight->waits_since_ns != 0 && awaited == flight->awaited) {
      require_progress(*flight, now_ns);
      continue;
    }
    flight->awaited = awaited;
    flight->waits_since_ns = flight->looked_ns = now_ns;
    flight->stuck_ns = 0;
    recorder_.waits(flight->items[0].record, awaited, now_ns);
  }
}

void Execution::require_messages_progress(int64_t now_ns) {
  if (data_timeout_ns_ <= 0) return;
  const auto stuck = pairs_.find_stuck(now_ns, data_timeout_ns_);
  if (stuck) give_up_waiting(stuck->transfer, stuck->awaited, now_ns);
}

/// Its peers are inside the same operation, and nobody can leave it alone: the world ends.
void Execution::require_progress(Flight& flight, int64_t now_ns) const {
  if (data_timeout_ns_ <= 0) return;
  // Who was stopped itself, perhaps with all its peers, has not waited for them meanwhile.
  flight.stuck_ns += std::min(now_ns - flight.looked_ns, data_timeout_ns_ / 4);
  flight.looked_ns = now_ns;
  if (flight.stuck_ns >= data_timeout_ns_) {
    give_up_waiting(flight.describe(), flight.awaited, now_ns);
  }
}

void Execution::give_up_waiting(const std::string& what, const Awaited& awaited,
                                int64_t now_ns) const {
  const int peer = awaited.rank;
  std::string why = what + " made no progress for " +
                    seconds_text(context_.options.data_timeout_seconds) + " on " +
                    context_.name_of(context_.rank);
  if (peer != Awaited::kNobody) {
    why += ", which waits " + wait_text(awaited.phase, awaited.chunk, context_.name_of(peer));
    if (context_.hosts.host_of(peer) == context_.hosts.host_of(context_.rank)) {
      const RankState state = state_of(*context_.region, context_.hosts, peer, now_ns);
      why += " (it is " + text_of(state) + ")";
    }
  }
  why += " (SIRTAKI_DATA_TIMEOUT_SECONDS sets how long is too long)";
  const int lost = peer != Awaited::kNobody ? peer : context_.rank;
  context_.doorbell.abort({lost, context_.rank, why, ErrorCode::kTimeout});
  context_.doorbell.check_abort();
}

}  // namespace sirtaki
