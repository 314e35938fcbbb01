#include "engine/sequencer/sequencer.h"

#include "collectives/kinds.h"
#include "collectives/slots/stream_slots.h"
#include "engine/observe/timeline.h"
#include "engine/requests/carried.h"
#include "transport/memory/region.h"

namespace sirtaki {
namespace {

constexpr auto kLargestChunk = static_cast<int64_t>(StreamSlots::most(Region::kWorldStreamBytes));

std::vector<int64_t> sizes_of(const Pending& pending) {
  std::vector<int64_t> sizes;
  const Request& base = pending.request;
  if (!has_sizes(base)) return sizes;
  if (traits_of(base.kind).layout == Layout::kExchanged) {
    for (const Request& r : pending.requests) {
      sizes.insert(sizes.end(), r.splits.begin(), r.splits.end());
    }
  } else {
    for (size_t t = 0; t < base.shapes.size(); ++t) {
      for (const Request& r : pending.requests) sizes.push_back(r.shapes[t][0]);
    }
  }
  return sizes;
}

}  // namespace

Sequencer::Sequencer(const HostMap& hosts, const EngineOptions& options, Send send, bool carries)
    : options_(options),
      send_(std::move(send)),
      carries_(carries),
      // Who has used an offer cannot learn any more that the operation has failed for rank 0.
      offers_(carries && options.stall_shutdown_seconds <= 0),
      rules_{.direct_hosts = options.direct_hosts},
      sets_(hosts.size()),
      cache_(options.cache_capacity),
      reports_(hosts, sets_, joins_),
      ready_(sets_) {
  if (options.autotune.enabled) {
    autotuner_ = std::make_unique<Autotuner>(options);
  } else if (options.adapts_chunk && !options.autotune.chunk_fixed && hosts.hosts() == 1) {
    // Waits between hosts end in sleep anyway.
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
  if (reports(kind)) return receive_report(from, kind, in);
  if (from.ranks.size() != 1 || !from.hosts.empty()) {
    throw Error(ErrorCode::kInternal, "what one rank says is said by several");
  }
  const int rank = from.ranks.front();
  switch (kind) {
    case Up::kFlushed:
      return receive_flushed(rank);
    case Up::kShutdown:
      return receive_shutdown(rank, now_ns);
    case Up::kLast:
      return receive_last(rank);
    case Up::kMeet:
      return receive_meet(rank, in.get<int32_t>());
    default:
      throw Error(ErrorCode::kInternal, "unknown control message");
  }
}

/// Makes two ranks of different hosts connect to each other.
void Sequencer::receive_meet(int rank, int32_t peer) {
  if (sets_.index(0, peer) < 0) refuse_report(rank, "wants to connect to a rank that is not");
  tell({peer}, message_of(Down::kMeet, rank));
}

// ---- Collecting the ranks' submissions ----

void Sequencer::receive_report(const Reporters& from, Up kind, Reader& in) {
  const auto report_all = [&](const Request& base, const auto& reported) {
    if (!sets_.contains(base.set)) return refuse(from, base);
    for (const HostRange& hosts : from.hosts) {
      const Stretch who = reports_.roster(base.set).of_hosts(hosts);
      if (who.size() == 0 || base.kind == Kind::kJoin) {
        throw Error(ErrorCode::kInternal, "hosts report what none of their ranks can");
      }
      report(who, base, reported);
    }
    for (const int rank : from.ranks) {
      const Stretch who = member(base.set, rank);
      base.kind == Kind::kJoin ? receive_join(rank, base) : report(who, base, reported);
    }
  };
  if (kind == Up::kRequest) {
    const Request request = Request::decode(in);
    return report_all(request, request);
  }
  const IdCache::Known& known = cache_.at(in.get<uint32_t>());
  const size_t bytes = in.rest().size();
  if (bytes != (kind == Up::kCarry ? known.response.carried : 0)) {
    throw Error(ErrorCode::kInternal, "a report with " + std::to_string(bytes) +
                                          " bytes of numbers for " +
                                          describe(known.response.base, 0));
  }
  report_all(known.response.base, KnownReport{known, in.rest()});
}

/// `reported`: the request in full, or a KnownReport.
template <class Report>
void Sequencer::report(Stretch who, const Request& base, const Report& reported) {
  Roster& members = reports_.roster(base.set);
  members.number(who, base, [&](Stretch some, uint64_t ordinal) {
    const auto [pending, is_new] = reports_.pending_for(some, base, ordinal);
    if (timeline_ != nullptr) {
      if (is_new) timeline_->negotiate_begin(base, ordinal);
      for (int place = some.begin; place < some.end; ++place) {
        timeline_->negotiate_rank(base, ordinal, members.rank_at(place));
      }
    }
    reports_.report(*pending, some, reported);
    if (fail_if_abandoned(*pending)) return;
    offer(*pending);
    complete_if_all(*pending);
  });
}

/// Sends rank 0's numbers to the other one of two members, if that is all that it lacks: with its
/// own it then has the result when rank 0 has.
void Sequencer::offer(Pending& pending) {
  const bool is_first = pending.reported.count() == 1 && pending.reported.contains(0);
  if (!offers_ || !is_first || pending.carriers != 1 || pending.members != 2) return;
  const Roster& members = reports_.roster(pending.set);
  const bool known = pending.known != nullptr && cache_.is_current(*pending.known);
  if (!known || members.rank_at(0) != 0 || pending.absent > 0) return;
  const std::string numbers = pending.numbers.substr(0, pending.known->response.carried);
  tell({members.rank_at(1)}, message_of(Down::kOffer, pending.known->id, pending.ordinal, numbers));
  pending.offered = true;
}

Stretch Sequencer::member(int32_t set, int rank) {
  const Stretch who = reports_.roster(set).of_rank(rank);
  if (who.size() == 0) {
    refuse_report(rank, "asks for an operation of a process set that it is not in");
  }
  return who;
}

/// Refuses a request whose set was removed while it was in transit.
void Sequencer::refuse(const Reporters& from, const Request& request) {
  Roster& members = reports_.roster(request.set);
  std::vector<Stretch> whom;
  for (const HostRange& hosts : from.hosts) whom.push_back(members.of_hosts(hosts));
  for (const int rank : from.ranks) whom.push_back(member(request.set, rank));
  for (const Stretch& who : whom) {
    members.number(who, request, [&](Stretch some, uint64_t ordinal) {
      std::vector<int> ranks;
      for (int place = some.begin; place < some.end; ++place) {
        ranks.push_back(members.rank_at(place));
      }
      send_error(std::move(ranks), match_key(request, ordinal), ErrorCode::kInternal,
                 describe(request, ordinal) + ": its process set was removed");
    });
  }
}

void Sequencer::set_timeline(Timeline* timeline) {
  timeline_ = timeline;
  if (timeline_ == nullptr) return;
  for (const Pending* pending : reports_.all()) {
    timeline_->negotiate_begin(pending->base(), pending->ordinal);
    for (const int rank : reports_.reporters(*pending)) {
      timeline_->negotiate_rank(pending->base(), pending->ordinal, rank);
    }
  }
}

void Sequencer::complete_if_all(Pending& pending) {
  if (!pending.complete()) return;
  std::unique_ptr<Pending> done = reports_.take(pending);
  if (timeline_ != nullptr) timeline_->negotiate_end(done->base(), done->ordinal);
  if (!done->error.empty()) return fail(*done, ErrorCode::kMismatch, done->error);
  const std::string why = cannot_run(*done, sets_, joins_);
  if (why.empty()) {
    if (done->known != nullptr && done->carriers == done->members) {
      const Op op = op_of(done->base(), static_cast<size_t>(done->members));
      done->result = carried_sum(op, reports_.roster(done->set).on_hosts(), done->numbers);
    }
    return ready_.add(std::move(done));
  }
  const bool by_caller = done->whole() && done->base().kind == Kind::kAddSet;
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

/// All members joined: reports that after everything that is ready.
void Sequencer::finish_join(int32_t set) {
  Roster& members = reports_.roster(set);
  auto done = std::make_unique<Pending>(members.size());
  done->request.kind = Kind::kJoin;
  done->request.name = "join." + std::to_string(set);
  done->request.set = set;
  done->request.root = joins_.last(set);
  done->set = set;
  done->reported.add(members.all());
  // Ranks that joined early missed unnamed operations; from here on all counts agree again.
  done->ordinal = members.align_ordinals();
  joins_.forget(set);
  ready_.add(std::move(done));
}

// ---- Sending ----

void Sequencer::send_to_set(int32_t set, std::string_view message) {
  send_({set, reports_.roster(set), {}}, message);
}

void Sequencer::tell(std::vector<int> ranks, std::string_view message) {
  send_({0, reports_.roster(0), std::move(ranks)}, message);
}

bool Sequencer::dispatch(int64_t now_ns, const std::function<bool(int32_t set)>& may_go) {
  const Ready::Batch batch = ready_.take(options_.fusion_bytes, may_go);
  if (batch.empty()) return false;
  if (autotuner_ != nullptr) tune(batch, now_ns);
  const int32_t to = changes_sets(batch[0]->base().kind) ? 0 : batch[0]->set;
  std::string message = message_of(Down::kBatch, static_cast<uint32_t>(batch.size()));
  for (const auto& pending : batch) append_item(message, *pending);
  const bool others_have_it = batch[0]->offered && !batch[0]->result.empty();
  others_have_it ? tell({0}, message) : send_to_set(to, message);
  if (cache_.full()) flush();  // after the batch, whose ids are forgotten, too
  return true;
}

void Sequencer::append_item(std::string& out, Pending& pending) {
  Writer writer(out);
  if (pending.known != nullptr && cache_.is_current(*pending.known) && pending.whole()) {
    writer.put(false).put(pending.known->id).put(pending.ordinal).put_string(pending.result);
    return;
  }
  pending.expand_whole();
  apply_to_sets(pending);
  const Response response = respond(pending);
  // Not all members are told of what was offered.
  const bool is_known = pending.whole() && !pending.offered;
  const uint32_t id = is_known ? cache_.remember(response, pending.requests) : 0;
  writer.put(true).put(id).put(pending.ordinal);
  writer(response)(pending.result);
}

/// What all members get to know about an operation that they agree on.
Response Sequencer::respond(const Pending& pending) {
  Response response;
  const Request& base = response.base = pending.request;
  response.joined = !pending.whole();
  response.sizes = sizes_of(pending);
  if (!carries_ || response.joined) return response;
  const size_t hosts = reports_.roster(pending.set).on_hosts().size();
  const size_t bytes = carried_bytes(base, static_cast<size_t>(pending.members), hosts, rules_);
  response.carried = static_cast<uint32_t>(bytes);
  return response;
}

void Sequencer::apply_to_sets(Pending& pending) {
  Request& base = pending.request;
  if (base.kind == Kind::kAddSet) {
    base.root = sets_.next_id();
    sets_.change(base);
    if (sets_.index(base.root, 0) < 0) ++sets_without_zero_;
    // They belong to an earlier set with this number, perhaps with other members.
    cache_.forget_set(base.root);
    reports_.forget_set(base.root);
  } else if (base.kind == Kind::kRemoveSet) {
    remove_set(base);
  }
}

/// Fails what some members have submitted in the set, which nobody can complete any more.
void Sequencer::remove_set(const Request& change) {
  const int32_t set = change.root;
  const std::string why = "its process set was removed";
  reports_.roster(set);  // for requests that are in transit
  const bool without_zero = sets_.index(set, 0) < 0;
  for (const Pending* pending : reports_.of_set(set)) {
    fail(*reports_.take(*pending), ErrorCode::kInternal, why);
  }
  for (const auto& ready : ready_.drop_set(set)) fail(*ready, ErrorCode::kInternal, why);
  joins_.forget(set);
  if (without_zero) --sets_without_zero_;
  sets_.change(change);
}

void Sequencer::fail(const Pending& pending, ErrorCode code, const std::string& why) {
  std::string text = describe(pending.base(), pending.ordinal);
  text += code == ErrorCode::kMismatch ? ": the ranks asked for " + why : ": " + why;
  // The others have not submitted it; if they do later, that is another operation.
  send_error(reports_.reporters(pending), pending.key, code, text);
}

void Sequencer::send_error(std::vector<int> ranks, const std::string& key, ErrorCode code,
                           const std::string& text) {
  tell(std::move(ranks), message_of(Down::kError, key, static_cast<uint8_t>(code), text));
}

/// Shows the autotuner a batch before it is sent, and sends all ranks the changes.
void Sequencer::tune(const Ready::Batch& batch, int64_t now_ns) {
  std::set<std::string> names;
  int64_t bytes = 0;
  for (const auto& pending : batch) {
    names.insert(pending->base().name);
    bytes += bytes_of(pending->base());
  }
  if (!autotuner_->record(names, bytes, now_ns)) return;
  options_.fusion_bytes = autotuner_->settings().fusion_bytes;
  send_chunk_bytes(autotuner_->settings().chunk_bytes);
}

void Sequencer::batch_done(int64_t bytes, int64_t sleeps) {
  if (!chunk_policy_ || !chunk_policy_->record(bytes, sleeps)) return;
  send_chunk_bytes(chunk_policy_->chunk_bytes());
}

// ---- Short ids ----

void Sequencer::flush() {
  if (cache_.flush(reports_.roster(0).size())) send_to_set(0, message_of(Down::kFlush));
}

void Sequencer::receive_flushed(int rank) {
  if (!cache_.flushed(rank)) return;
  const auto is_old = [this](const Pending& pending) {
    return pending.known != nullptr && !cache_.is_current(*pending.known);
  };
  for (Pending* pending : reports_.all()) {
    if (is_old(*pending)) reports_.expand(*pending);
  }
  for (const auto& pending : ready_.all()) {
    if (is_old(*pending)) pending->expand_whole();
  }
  cache_.drop_old();
}

// ---- Ends ----

void Sequencer::receive_shutdown(int rank, int64_t now_ns) {
  while (dispatch(now_ns)) {
  }
  send_to_set(0, message_of(Down::kShutdown, rank));
  ended_ = true;
}

void Sequencer::receive_last(int rank) {
  last_.insert(rank);
  for (Pending* pending : reports_.all()) fail_if_abandoned(*pending);
}

/// Fails it if a member that has not submitted it submits nothing more: the wait would be in vain.
bool Sequencer::fail_if_abandoned(Pending& pending) {
  for (const int rank : last_) {
    const Stretch who = reports_.roster(pending.set).of_rank(rank);
    if (who.size() == 0 || pending.reported.contains_any(who)) continue;
    fail(*reports_.take(pending), ErrorCode::kPeerLost,
         "rank " + std::to_string(rank) + options_.host_text(rank) +
             " left the group without submitting it; look for its own error message, or end the "
             "group on all ranks together");
    return true;
  }
  return false;
}

}  // namespace sirtaki
