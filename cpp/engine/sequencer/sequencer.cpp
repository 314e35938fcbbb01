#include "engine/sequencer/sequencer.h"

#include <algorithm>

#include "collectives/kinds.h"
#include "collectives/slots/stream_slots.h"
#include "engine/observe/timeline.h"
#include "engine/sequencer/stalls.h"
#include "transport/memory/region.h"

namespace sirtaki {
namespace {

constexpr auto kLargestChunk = static_cast<int64_t>(StreamSlots::most(Region::kWorldStreamBytes));

/// What all members are told of an operation that they agree on.
Response respond(const Pending& pending) {
  Response response;
  response.base = pending.base;
  response.joined = !pending.whole();
  const size_t members = pending.requests.size();
  if (!has_sizes(pending.base)) return response;
  if (pending.base.kind == Kind::kAlltoall) {
    for (const Request& r : pending.requests) {
      response.sizes.insert(response.sizes.end(), r.splits.begin(), r.splits.end());
    }
  } else {
    for (size_t t = 0; t < pending.base.shapes.size(); ++t) {
      for (size_t m = 0; m < members; ++m) {
        response.sizes.push_back(pending.requests[m].shapes[t][0]);
      }
    }
  }
  return response;
}

}  // namespace

Sequencer::Sequencer(const HostMap& hosts, const EngineOptions& options, Send send)
    : size_(hosts.size()),
      options_(options),
      send_(std::move(send)),
      sets_(hosts.size()),
      cache_(options.cache_capacity),
      reports_(hosts, sets_, cache_, joins_),
      ready_(reports_, sets_) {
  if (options.autotune.enabled) {
    autotuner_ = std::make_unique<Autotuner>(options);
  } else if (options.adapts_chunk && !options.autotune.chunk_fixed) {
    chunk_policy_.emplace(options.chunk_bytes, kLargestChunk);
  }
}

void Sequencer::receive(int rank, std::string_view message, int64_t now_ns) {
  receive(Reporters{{rank}, {}}, message, now_ns);
}

void Sequencer::receive(const Reporters& from, std::string_view message, int64_t now_ns) {
  if (ended_) return;
  Reader in(message);
  const Up kind = in.get<Up>();
  if (kind == Up::kRequest || kind == Up::kReady) return receive_report(from, kind, in, now_ns);
  if (from.ranks.size() != 1 || !from.hosts.empty()) {
    throw Error(ErrorCode::kInternal, "what one rank says is said by several");
  }
  const int rank = from.ranks.front();
  switch (kind) {
    case Up::kFlushed:
      return receive_flushed(rank);
    case Up::kShutdown:
      return receive_shutdown(rank, now_ns);
    case Up::kMeet:
      return receive_meet(rank, in.get<int32_t>());
    default:
      throw Error(ErrorCode::kInternal, "unknown control message");
  }
}

/// Two ranks of different hosts are to connect to each other.
void Sequencer::receive_meet(int rank, int32_t peer) {
  if (sets_.index(0, peer) < 0) refuse_report(rank, "wants to connect to a rank that is not");
  std::string message;
  Writer(message).put(Down::kMeet).put(static_cast<int32_t>(rank));
  send_to({peer}, message);
}

// ---- Collecting what the ranks submit ----

void Sequencer::receive_report(const Reporters& from, Up kind, Reader& in, int64_t now_ns) {
  const uint32_t id = kind == Up::kReady ? in.get<uint32_t>() : 0;
  std::optional<Request> asked;
  if (id == 0) asked = Request::decode(in);
  const Request& base = id == 0 ? *asked : cache_.at(id).response.base;
  if (!sets_.contains(base.set)) return refuse(from, base);
  const auto add = [&](Pending& pending, Stretch who) {
    id == 0 ? reports_.report(pending, who, base) : reports_.report(pending, who, id);
  };
  for (const HostRange& hosts : from.hosts) {
    const Stretch who = reports_.roster(base.set).of_hosts(hosts);
    if (who.size() == 0 || base.kind == Kind::kJoin) {
      throw Error(ErrorCode::kInternal, "hosts report what none of their ranks can");
    }
    report(who, base, add, now_ns);
  }
  for (const int rank : from.ranks) {
    const Stretch who = member(base.set, rank);
    base.kind == Kind::kJoin ? receive_join(rank, base) : report(who, base, add, now_ns);
  }
}

/// `add(pending, who)` notes the report where it belongs.
template <class Add>
void Sequencer::report(Stretch who, const Request& base, const Add& add, int64_t now_ns) {
  const auto found = reports_.pending_for(who, base, now_ns);
  if (!found) {  // they have made different numbers of unnamed requests
    for (int place = who.begin; place < who.end; ++place) {
      report({place, place + 1}, base, add, now_ns);
    }
    return;
  }
  const auto [pending, is_new] = *found;
  if (timeline_ != nullptr) {
    if (is_new) timeline_->negotiate_begin(base, pending->ordinal);
    for (int place = who.begin; place < who.end; ++place) {
      timeline_->negotiate_rank(base, pending->ordinal, reports_.roster(base.set).rank_at(place));
    }
  }
  add(*pending, who);
  complete_if_all(*pending);
}

Stretch Sequencer::member(int32_t set, int rank) {
  const Stretch who = reports_.roster(set).of_rank(rank);
  if (who.size() == 0) {
    refuse_report(rank, "asks for an operation of a process set that it is not in");
  }
  return who;
}

/// The set was removed while the request was on its way.
void Sequencer::refuse(const Reporters& from, const Request& request) {
  Roster& members = reports_.roster(request.set);
  std::vector<Stretch> whom;
  for (const HostRange& hosts : from.hosts) whom.push_back(members.of_hosts(hosts));
  for (const int rank : from.ranks) whom.push_back(member(request.set, rank));
  for (const Stretch& who : whom) {
    for (int place = who.begin; place < who.end; ++place) {
      const uint64_t ordinal = request.name.empty() ? *members.next_ordinal({place, place + 1}) : 0;
      send_error({members.rank_at(place)}, match_key(request, ordinal), ErrorCode::kInternal,
                 describe(request, ordinal) + ": its process set was removed");
    }
  }
}

void Sequencer::set_timeline(Timeline* timeline) {
  timeline_ = timeline;
  if (timeline_ == nullptr) return;
  for (const Pending* pending : reports_.all()) {
    timeline_->negotiate_begin(base_of(*pending), pending->ordinal);
    for (const int rank : reports_.reporters(*pending)) {
      timeline_->negotiate_rank(base_of(*pending), pending->ordinal, rank);
    }
  }
}

void Sequencer::complete_if_all(Pending& pending) {
  if (!pending.complete()) return;
  std::unique_ptr<Pending> done = reports_.take(pending);
  if (timeline_ != nullptr) timeline_->negotiate_end(base_of(*done), done->ordinal);
  if (!done->error.empty()) return fail(*done, ErrorCode::kMismatch, done->error);
  const Request& base = base_of(*done);
  const std::string why = cannot_run(*done, base, sets_, joins_);
  if (why.empty()) return ready_.add(std::move(done));
  const bool by_caller = done->whole() && base.kind == Kind::kAddSet;
  fail(*done, by_caller ? ErrorCode::kInvalid : ErrorCode::kInternal, why);
}

// ---- Join ----

void Sequencer::receive_join(int rank, const Request& request) {
  const int32_t set = request.set;
  const int members = reports_.roster(set).size();
  const int place = member(set, rank).begin;
  joins_.add(set, rank, place, members, request.device != 0);
  reports_.join(set, place);
  for (Pending* pending : reports_.of_set(set)) complete_if_all(*pending);
  if (joins_.count(set) == members) finish_join(set);
}

/// Everybody joined: tell so, behind everything that is ready.
void Sequencer::finish_join(int32_t set) {
  Roster& members = reports_.roster(set);
  auto done = std::make_unique<Pending>(members.size());
  done->base.kind = Kind::kJoin;
  done->base.name = "join." + std::to_string(set);
  done->base.set = set;
  done->base.root = joins_.last(set);
  done->set = set;
  done->reported.add(members.all());
  // Ranks that joined early missed unnamed operations; from here on all count alike again.
  done->ordinal = members.align_ordinals();
  joins_.forget(set);
  ready_.add(std::move(done));
}

// ---- Sending ----

void Sequencer::send_to_set(int32_t set, std::string_view message) {
  send_({set, reports_.roster(set), {}}, message);
}

void Sequencer::send_to(std::vector<int> ranks, std::string_view message) {
  send_({0, reports_.roster(0), std::move(ranks)}, message);
}

bool Sequencer::dispatch(int64_t now_ns, const std::function<bool(int32_t set)>& may_go) {
  const Ready::Batch batch = ready_.take(options_.fusion_bytes, may_go);
  if (batch.empty()) return false;
  if (autotuner_ != nullptr) tune(batch, now_ns);
  const int32_t to = changes_sets(base_of(*batch[0]).kind) ? 0 : batch[0]->set;
  std::string message;
  Writer out(message);
  out.put(Down::kBatch).put(static_cast<uint32_t>(batch.size()));
  for (const auto& pending : batch) append_item(message, *pending);
  send_to_set(to, message);
  if (cache_.full()) flush();  // behind the batch, whose ids are forgotten too
  return true;
}

void Sequencer::append_item(std::string& out, Pending& pending) {
  Writer writer(out);
  if (cache_.is_current(pending.id) && pending.whole()) {
    writer.put(false).put(pending.id).put(pending.ordinal);
    return;
  }
  reports_.expand_whole(pending);
  apply_to_sets(pending);
  const Response response = respond(pending);
  const uint32_t id = pending.whole() ? cache_.remember(response, pending.requests) : 0;
  writer.put(true).put(id).put(pending.ordinal);
  response.encode(writer);
}

void Sequencer::apply_to_sets(Pending& pending) {
  Request& base = pending.base;
  if (base.kind == Kind::kAddSet) {
    base.root = sets_.next_id();
    sets_.add(base.root, {base.splits.begin(), base.splits.end()});
    if (sets_.index(base.root, 0) < 0) ++sets_without_zero_;
    // Of an earlier set with this number, and perhaps other members.
    cache_.forget_set(base.root);
    reports_.forget_set(base.root);
  } else if (base.kind == Kind::kRemoveSet) {
    remove_set(base.root);
  }
}

/// What some members have submitted in the set cannot be completed any more.
void Sequencer::remove_set(int32_t set) {
  const std::string why = "its process set was removed";
  reports_.roster(set);  // for requests that are on their way
  const bool without_zero = sets_.index(set, 0) < 0;
  for (const Pending* pending : reports_.of_set(set)) {
    fail(*reports_.take(*pending), ErrorCode::kInternal, why);
  }
  for (const auto& ready : ready_.drop_set(set)) fail(*ready, ErrorCode::kInternal, why);
  joins_.forget(set);
  if (without_zero) --sets_without_zero_;
  sets_.remove(set);
}

void Sequencer::fail(const Pending& pending, ErrorCode code, const std::string& why) {
  std::string text = describe(base_of(pending), pending.ordinal);
  text += code == ErrorCode::kMismatch ? ": the ranks asked for " + why : ": " + why;
  // The others have not submitted it; if they do later, that is another operation.
  send_error(reports_.reporters(pending), pending.key, code, text);
}

void Sequencer::send_error(std::vector<int> ranks, const std::string& key, ErrorCode code,
                           const std::string& text) {
  std::string message;
  Writer(message)
      .put(Down::kError)
      .put_string(key)
      .put(static_cast<uint8_t>(code))
      .put_string(text);
  send_to(std::move(ranks), message);
}

/// Lets the autotuner see a batch before it goes out, and tells all ranks what it changed.
void Sequencer::tune(const Ready::Batch& batch, int64_t now_ns) {
  std::set<std::string> names;
  int64_t bytes = 0;
  for (const auto& pending : batch) {
    names.insert(base_of(*pending).name);
    bytes += bytes_of(base_of(*pending));
  }
  if (!autotuner_->record(names, bytes, now_ns)) return;
  options_.fusion_bytes = autotuner_->settings().fusion_bytes;
  send_chunk_bytes(autotuner_->settings().chunk_bytes);
}

void Sequencer::batch_done(int64_t bytes, int64_t sleeps) {
  if (!chunk_policy_ || !chunk_policy_->record(bytes, sleeps)) return;
  send_chunk_bytes(chunk_policy_->chunk_bytes());
}

void Sequencer::announce_settings() { send_chunk_bytes(options_.chunk_bytes); }

void Sequencer::send_chunk_bytes(int64_t bytes) {
  std::string message;
  Writer(message).put(Down::kTune).put(bytes);
  send_to_set(0, message);
}

// ---- Short ids ----

void Sequencer::flush() {
  if (!cache_.flush(size_)) return;
  std::string message;
  Writer(message).put(Down::kFlush);
  send_to_set(0, message);
}

void Sequencer::receive_flushed(int rank) {
  if (!cache_.flushed(rank)) return;
  reports_.expand_old();
  for (const auto& pending : ready_.all()) {
    if (!cache_.is_current(pending->id)) reports_.expand_whole(*pending);
  }
  cache_.drop_old();
}

// ---- Ends ----

void Sequencer::receive_shutdown(int rank, int64_t now_ns) {
  while (dispatch(now_ns)) {
  }
  std::string message;
  Writer(message).put(Down::kShutdown).put(static_cast<int32_t>(rank));
  send_to_set(0, message);
  ended_ = true;
}

std::vector<std::string> Sequencer::check_stalls(int64_t now_ns, const StateOf& state_of) {
  std::vector<std::string> warnings;
  if (ended_) return warnings;
  for (const Stall& stall : find_stalls(reports_, options_, now_ns, state_of)) {
    if (stall.fails) {
      fail(*stall.pending, ErrorCode::kTimeout,
           "not submitted within " + seconds_text(options_.stall_shutdown_seconds) +
               "; missing ranks: " + stall.missing);
      reports_.take(*stall.pending);
    } else {
      stall.pending->warned_ns = now_ns;
      warnings.push_back(describe(base_of(*stall.pending), stall.pending->ordinal) +
                         " has waited for " + std::to_string(static_cast<int>(stall.seconds)) +
                         " s; missing ranks: " + stall.missing);
    }
  }
  return warnings;
}

}  // namespace sirtaki
