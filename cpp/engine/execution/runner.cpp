#include "engine/execution/runner.h"

#include <algorithm>
#include <utility>

#include "engine/observe/rank_state.h"

namespace sirtaki {

Runner::Runner(RankContext& context, Backend& backend, Agreement& agreement, Launches& launches,
               MakeNetwork make_network, Runner::Listener& listener)
    : context_(context),
      agreement_(agreement),
      listener_(listener),
      data_timeout_ns_(ns_of(context.options.data_timeout_seconds)),
      executor_(context, backend, agreement.sets(), launches),
      pairs_(context.endpoint, context.hosts, std::move(make_network), context.options.single_copy,
             *this) {}

// ---- Batches ----

bool Runner::advance_batches() {
  bool moved = begin_some();
  for (size_t i = 0; i < flights_.size();) {
    Flight& flight = *flights_[i];
    const bool ready = flight.work->is_ready();
    moved |= ready;
    if (!ready || !go_on(flight)) {
      ++i;
      continue;
    }
    flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(i));
    held_up_ = false;
  }
  return moved;
}

bool Runner::is_ready() {
  if (!queue_.empty() && !held_up_) return true;
  const auto ready = [](const auto& flight) { return flight->work->is_ready(); };
  return std::any_of(flights_.begin(), flights_.end(), ready) || pairs_.is_ready();
}

/// Begins each batch in its turn, as soon as its track is free.
bool Runner::begin_some() {
  if (queue_.empty() || held_up_) return false;
  bool begun = false;
  std::vector<int> held;  // tracks for which an earlier batch waits
  for (auto it = queue_.begin(); it != queue_.end();) {
    const int track = executor_.track_of(*it);
    if (!may_begin(track, held)) {
      held.push_back(track);
      ++it;
      continue;
    }
    Batch batch = std::move(*it);
    it = queue_.erase(it);
    begin(std::move(batch), track);
    begun = true;
  }
  held_up_ = !queue_.empty();
  return begun;
}

/// A batch for all tracks waits for all earlier ones and holds back all later ones.
bool Runner::may_begin(int track, const std::vector<int>& held) const {
  if (track == Executor::kAllTracks) return flights_.empty() && held.empty();
  const auto blocks = [&](int other) { return other == track || other == Executor::kAllTracks; };
  return std::ranges::none_of(held, blocks) &&
         std::ranges::none_of(flights_, blocks, &Flight::track);
}

void Runner::begin(Batch batch, int track) {
  if (batch.last) return listener_.close();
  flights_.push_back(std::make_unique<Flight>(std::move(batch), track));
  Flight& flight = *flights_.back();
  note_begun(flight);
  try {
    executor_.start(flight);
  } catch (const Error& error) {
    if (error.scope != Scope::kAllMembers) throw;
    fail(flight, error);
    flights_.pop_back();
  }
}

void Runner::note_begun(Flight& flight) {
  for (const Item& item : flight.items) context_.recorder.begun(item.record);
  flight.sleeps_before = context_.doorbell.data_sleeps();
  if (context_.log.shows(LogLevel::kTrace)) {
    const size_t more = flight.items.size() - 1;
    context_.log.write(
        LogLevel::kTrace,
        "runs " + flight.describe() + (more > 0 ? " and " + std::to_string(more) + " more" : ""));
  }
  if (const auto timeline = context_.timeline.get()) timeline->run_begin(flight.items);
}

/// True when it is done, successfully or not.
bool Runner::go_on(Flight& flight) {
  if (flight.waits_since_ns != 0) {
    flight.waits_since_ns = 0;
    context_.recorder.waits(flight.items[0].record, {}, 0);
  }
  try {
    if (!flight.work->advance()) return false;
  } catch (const Error& error) {
    if (error.scope != Scope::kAllMembers) throw;
    fail(flight, error);
    return true;
  }
  flight.work.reset();
  const Request& base = flight.base();
  const bool tells_root = base.kind == Kind::kJoin || base.kind == Kind::kAddSet;
  if (tells_root) flight.items[0].entry->handle->value = base.root;
  if (changes_sets(base.kind)) agreement_.change_sets(base);
  done(flight, std::nullopt);
  return true;
}

/// All members detect this error, so it does not end the world. One that only this rank detects
/// does, because the others wait for this rank's part.
void Runner::fail(Flight& flight, const Error& error) {
  flight.work.reset();
  const Error failed(error.code, flight.describe() + " has failed", error.scope);
  done(flight, failed.because(error.what()));
}

void Runner::done(Flight& flight, const std::optional<Error>& error) {
  if (const auto timeline = context_.timeline.get()) timeline->run_end(flight.items);
  if (flight.base().kind == Kind::kRemoveSet) pairs_.forget(flight.base().root);
  const bool handed_over = flight.base().launched() && !error;
  for (const Item& item : flight.items) {
    if (!handed_over) {
      end(item, error);
    } else if (item.entry != nullptr) {
      complete(item.entry->handle, std::nullopt);
    }
  }
  agreement_.done(flight);
}

std::vector<Item> Runner::drop_batches() {
  std::vector<Item> items;
  const auto take = [&](std::vector<Item>& from) {
    std::move(from.begin(), from.end(), std::back_inserter(items));
  };
  for (const auto& flight : flights_) {
    flight->work.reset();  // before the memory that it uses
    take(flight->items);
  }
  for (Batch& batch : queue_) take(batch.items);
  flights_.clear();
  queue_.clear();
  held_up_ = false;
  return items;
}

// ---- Outcomes of operations and messages ----

void Runner::end(const std::shared_ptr<void>& owner, const Message& message,
                 const std::optional<Error>& error) {
  auto handle = std::static_pointer_cast<Handle>(owner);
  handle->message = message;
  if (handle->traced) context_.recorder.messages().ended(*handle->traced, message, !error);
  complete(std::move(handle), error);
}

void Runner::complete(const Entry& entry, std::optional<Error> error) {
  if (!error && !entry.no_memory.empty()) {
    error = invalid(sirtaki::describe(entry.request, entry.ordinal) + ": " + entry.no_memory);
  }
  context_.recorder.ended(entry.handle->record, !error);
  if (context_.hooks.any()) context_.hooks.ended(entry.request, error, context_.callbacks);
  complete(entry.handle, error);
}

void Runner::complete(std::shared_ptr<Handle> handle, const std::optional<Error>& error) {
  if (handle->complete(error) && handle->calls_back()) context_.callbacks.add(std::move(handle));
}

void Runner::end(const Item& item, const std::optional<Error>& error) {
  if (item.entry != nullptr) return complete(*item.entry, error);
  context_.recorder.ended(item.record, !error);  // without a handle: this rank has joined
}

void Runner::fail(const std::vector<Item>& dropped, const Error& error) {
  for (const Item& item : dropped) end(item, error);
  pairs_.drop(error);
}

std::string Runner::describe() const {
  if (!flights_.empty()) return flights_.front()->describe();
  const Transfer* message = pairs_.pending_of(nullptr);
  return message == nullptr ? "" : sirtaki::describe(*message);
}

// ---- Waits of operations in progress, and their limits ----

Sleep Runner::prepare(int64_t now_ns) {
  Sleep sleep;
  sleep.messages = kControl | kRequest;
  for (const auto& flight : flights_) flight->work->prepare(sleep);
  pairs_.prepare(sleep);
  note_waits(now_ns);
  return sleep;
}

uint32_t Runner::prepare_messages() {
  if (!pairs_.pending()) context_.recorder.forget_message();
  Sleep sleep;
  pairs_.prepare(sleep);
  return sleep.messages;
}

/// Called when the driver is about to sleep, so that polling costs nothing.
void Runner::note_waits(int64_t now_ns) {
  context_.recorder.sleeps(pairs_.pending() ? pairs_.pending_of(nullptr) : nullptr, now_ns);
  pairs_.check_patience();
  if (data_timeout_ns_ > 0) {
    const auto stuck = pairs_.find_stuck(now_ns, data_timeout_ns_);
    if (stuck) give_up_waiting(stuck->transfer, stuck->awaited, now_ns);
  }
  for (const auto& flight : flights_) {
    const Awaited awaited = flight->work->awaited();
    const bool still = flight->waits_since_ns != 0 && awaited == flight->awaited;
    const int64_t stuck_ns = flight->stuck.look(still, now_ns, data_timeout_ns_ / 4);
    if (data_timeout_ns_ > 0 && stuck_ns >= data_timeout_ns_) {
      give_up_waiting(flight->describe(), awaited, now_ns);
    }
    if (still) continue;
    flight->awaited = awaited;
    flight->waits_since_ns = now_ns;
    context_.recorder.waits(flight->items[0].record, awaited, now_ns);
  }
}

/// Ends the world: its peers are in the same operation, which no rank can leave alone.
void Runner::give_up_waiting(const std::string& what, const Awaited& awaited,
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
