#include "engine/agreement.h"

#include <utility>

#include "collectives/kinds.h"
#include "engine/callers.h"
#include "engine/requests/checks.h"

namespace sirtaki {
namespace {

constexpr int64_t kLeastChunk = 4096;  // the limit in Python's Config
constexpr int64_t kMostChunk = int64_t{1} << 48;

}  // namespace

Agreement::Agreement(RankContext& context, const Backend& backend, const PeerWatch& watch,
                     Agreement::Listener& listener)
    : context_(context),
      watch_(watch),
      listener_(listener),
      sets_(context.size),
      negotiation_(context.rank, sets_, *this),
      control_(context, watch),
      chunk_bytes_(static_cast<size_t>(context.options.chunk_bytes)) {
  if (context.rank != 0) return;
  sequencing_ = std::make_unique<Sequencing>(context, backend, control_, watch.relay());
}

void Agreement::begin() {
  if (sequencing_ != nullptr) sequencing_->begin();
}

// ---- Submitting ----

std::shared_ptr<Handle> Agreement::submit(Submission&& submission) {
  std::unique_ptr<Entry> entry = entry_of(std::move(submission));
  std::shared_ptr<Handle> handle = entry->handle;
  const std::lock_guard lock(mutex_);
  if (ended_) throw *ended_;
  require_member(*entry);
  Entry& added = negotiation_.add(std::move(entry));
  handle->record = context_.recorder.submitted(added.request, added.ordinal);
  try {
    tell(negotiation_.announcement(added), false);
    if (sequencing_ != nullptr) sequencing_->advance();
    if (negotiation_.has_offer()) has_offer_.store(true);
  } catch (const std::exception& error) {
    withdraw(added, error.what());
    throw;
  }
  return handle;
}

std::unique_ptr<Entry> Agreement::entry_of(Submission&& submission) const {
  if (submission.encoded.empty()) {
    if (const std::string why = malformed(submission.request); !why.empty()) {
      throw invalid(context_.name_of(context_.rank) + " made an impossible request: " + why);
    }
    Writer writer(submission.encoded);
    submission.request.encode(writer);
  }
  require_frame_size(submission.encoded.size() + sizeof(Up));
  auto entry = std::make_unique<Entry>(std::move(submission));
  if (entry->handle == nullptr) entry->handle = std::make_shared<Handle>();
  return entry;
}

/// Runs before any other rank is notified: only this rank could detect what is wrong.
void Agreement::require_member(const Submission& submission) const {
  const Request& asked = submission.request;
  if (!sets_.contains(asked.set) || sets_.index(asked.set, context_.rank) < 0) {
    throw invalid(context_.name_of(context_.rank) + " is not a member of process set " +
                  std::to_string(asked.set));
  }
  const size_t members = sets_.ranks(asked.set).size();
  std::string why = missing_memory(submission, context_.rank, members);
  if (why.empty()) why = unsupported(asked, members);
  if (why.empty() && !changes_sets(asked.kind)) why = wrong_root(asked, sets_);
  const bool exchanges = traits_of(asked.kind).layout == Layout::kExchanged;
  if (why.empty() && exchanges && !asked.shapes[0].empty()) why = wrong_splits(asked, members);
  if (why.empty()) return;
  throw invalid(context_.name_of(context_.rank) + " made an impossible request: " + why);
}

/// Withdraws an operation that could not be announced: its memory belongs to the caller.
void Agreement::withdraw(const Entry& entry, const std::string& why) {
  context_.recorder.ended(entry.handle->record, false);
  negotiation_.withdraw(entry);
  // A ring takes all of a message or nothing; sequencer and aggregator may have half of it.
  if (context_.place != 0) return;
  watch_.abort({context_.rank, -1, "it could not announce an operation: " + why});
}

/// Notifies the sequencer. `urgent`: it must read this soon, even if it expects no requests.
void Agreement::tell(std::string_view message, bool urgent) {
  if (sequencing_ != nullptr) return sequencing_->receive_own(message);
  control_.send_up(message, urgent);
}

void Agreement::invite(int rank) {
  const std::lock_guard lock(mutex_);
  if (!ended_) tell(message_of(Up::kMeet, rank), true);
}

std::shared_ptr<Handle> Agreement::ask() {
  const std::lock_guard lock(mutex_);
  if (ended_) return nullptr;
  if (asked_ == nullptr || asked_->done()) {
    asked_ = std::make_shared<Handle>();
    tell(message_of(Up::kAsk), true);
    if (sequencing_ != nullptr) sequencing_->advance();
  }
  return asked_;
}

std::map<int, RankState> Agreement::told() {
  const std::lock_guard lock(mutex_);
  return told_;
}

void Agreement::finish() {
  const std::lock_guard lock(mutex_);
  if (!ended_) tell(message_of(Up::kLast), true);
}

void Agreement::leave() {
  const std::lock_guard lock(mutex_);
  // Peers that have not checked yet would take a leaving rank for the cause of the loss.
  if (ended_ || context_.doorbell.aborted()) return;
  try {
    if (sequencing_ != nullptr) sequencing_->advance();
    tell(message_of(Up::kShutdown), true);
  } catch (const std::exception& error) {
    watch_.abort(
        {context_.rank, -1, std::string("it could not say that it leaves: ") + error.what()});
  }
}

// ---- Decisions of the sequencer ----

void Agreement::receive_batch(std::vector<Item> items) {
  for (Item& item : items) {
    item.record = item.entry != nullptr
                      ? item.entry->handle->record
                      : context_.recorder.submitted(item.response->base, item.ordinal);
    context_.recorder.agreed(item.record);
  }
  if (items.empty()) return;
  const Request& base = items[0].response->base;
  if (sequencing_ != nullptr && !base.launched()) sequencing_->begun(base);
  Batch batch;
  batch.items = std::move(items);
  batch.chunk_bytes = chunk_bytes_;
  listener_.run(std::move(batch));
}

void Agreement::receive_tune(int64_t chunk_bytes) {
  if (chunk_bytes < kLeastChunk || chunk_bytes > kMostChunk) {
    throw Error(ErrorCode::kInternal,
                "a chunk cannot have " + std::to_string(chunk_bytes) + " bytes");
  }
  chunk_bytes_ = static_cast<size_t>(chunk_bytes);
}

void Agreement::receive_meet(int rank) {
  const HostMap& hosts = context_.hosts;
  if (rank < 0 || rank >= context_.size || hosts.host_of(rank) == hosts.host_of(context_.rank)) {
    throw Error(ErrorCode::kInternal,
                "rank " + std::to_string(rank) + " is on no other host to connect to");
  }
  listener_.meet(rank);
}

void Agreement::receive_states(Reader& states) {
  told_.clear();
  while (!states.empty()) {
    RankState state = RankState::decode(states, context_.size);
    told_[state.rank] = std::move(state);
  }
  if (asked_ != nullptr) asked_->complete();
}

void Agreement::receive_shutdown(int rank) {
  const std::string who = rank == context_.rank ? "this rank" : context_.name_of(rank);
  if (!ended_) {
    ended_ =
        Error(ErrorCode::kInternal,
              "the world has been shut down: " + who +
                  " left (its script ended, it raised an exception, or it called shutdown()); "
                  "let every rank run the same number of steps, or use join() where there is one");
  }
  for (const auto& entry : negotiation_.drop()) listener_.refuse(*entry, *ended_);
  control_.drop_up();
  Batch last;
  last.last = true;
  listener_.run(std::move(last));
}

// ---- The driver ----

void Agreement::advance() {
  const std::lock_guard lock(mutex_);
  control_.flush();
  if (sequencing_ != nullptr) sequencing_->advance();
  if (has_offer_.exchange(false)) negotiation_.use_offer();
  control_.receive_down([this](std::string_view message) { negotiation_.receive(message); });
}

bool Agreement::has_work() {
  constexpr uint32_t kSeldom = 16;  // asking sockets takes longer than reading memory
  if (++looks_ % kSeldom == 0) control_.look();
  return control_.has_down() || control_.has_up() || control_.has_backlog() || has_offer_.load();
}

void Agreement::change_sets(const Request& change) {
  const std::lock_guard lock(mutex_);
  sets_.change(change);
}

void Agreement::done(const Flight& flight) {
  if (sequencing_ == nullptr || flight.base().launched()) return;
  const std::lock_guard lock(mutex_);
  sequencing_->done(flight);
}

Agreement::Rest Agreement::rest(uint32_t messages) {
  const std::lock_guard lock(mutex_);
  const bool sequences = sequencing_ != nullptr;
  const Rest rest{sequences && sequencing_->has_ready(), !sequences || sequencing_->expects_peers(),
                  !ended_};
  const uint32_t requests = rest.hears_requests ? kRequest : 0U;
  // Under the lock, so that the next submitter sees the thread asleep or this rest out of date.
  context_.doorbell.engine().park(messages | kControl | requests);
  return rest;
}

bool Agreement::has_news(const Rest& rest) const {
  // Messages left in the rings of a lost world are not run, but waiting threads must learn of it.
  if (context_.doorbell.aborted()) return rest.expects_end;
  return control_.has_down() || control_.has_backlog() || control_.has_urgent() ||
         has_offer_.load() || (rest.hears_requests && control_.has_up());
}

// ---- The ending ----

Error Agreement::end(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (!ended_) ended_ = why;
  if (asked_ != nullptr) asked_->complete();
  return *ended_;
}

std::optional<Error> Agreement::ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::vector<std::unique_ptr<Entry>> Agreement::drop() {
  const std::lock_guard lock(mutex_);
  if (sequencing_ != nullptr) sequencing_->drop();
  return negotiation_.drop();
}

std::string Agreement::phase() {
  const std::lock_guard lock(mutex_);
  const Entry* first = negotiation_.first();
  if (first == nullptr) return " while no operation was running";
  std::string text = " before all ranks had submitted " + describe(first->request, first->ordinal);
  const size_t waiting = negotiation_.waiting();
  if (waiting > 1) text += " and " + std::to_string(waiting - 1) + " more";
  return text;
}

// ---- For users ----

std::map<int32_t, std::vector<int>> Agreement::process_sets() {
  const std::lock_guard lock(mutex_);
  return sets_.all();
}

std::string Agreement::not_members(int32_t set, int peer) {
  const std::string text = "process set " + std::to_string(set);
  const std::lock_guard lock(mutex_);
  if (!sets_.contains(set)) return "there is no " + text;
  if (sets_.index(set, context_.rank) < 0) return "it is not a member of " + text;
  if (peer == kAnySource || sets_.index(set, peer) >= 0) return "";
  return "rank " + std::to_string(peer) + " is not a member of " + text;
}

void Agreement::set_timeline(Timeline* timeline) {
  const std::lock_guard lock(mutex_);
  sequencing_->set_timeline(timeline);
}

void Agreement::check_stalls(int64_t now_ns) {
  if (sequencing_ == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    sequencing_->check_stalls(now_ns);
    // The driver may be another thread, and asleep.
    if (control_.has_own()) context_.doorbell.ring_own(kControl);
  }
  check_deadlock(now_ns);
}

/// Ends the world if no rank of the job can go on because each waits for another.
void Agreement::check_deadlock(int64_t now_ns) {
  const double limit = context_.options.deadlock_seconds;
  if (!context_.options.has_whole_job || limit <= 0 || context_.doorbell.aborted()) return;
  std::string all;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) all = sequencing_->all_blocked(now_ns);
  }
  if (all.empty()) return;
  const std::string why =
      std::string(kDeadlocked) + " for " + seconds_text(limit) +
      ", each waiting for another: let all ranks call the same operations in the same order "
      "(SIRTAKI_DEADLOCK_SECONDS sets how long is too long):" +
      all;
  context_.log.write(LogLevel::kError, why);
  watch_.abort({0, 0, why, ErrorCode::kTimeout});
}

}  // namespace sirtaki
