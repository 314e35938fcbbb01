#include "engine/control/host_aggregator.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "engine/requests/checks.h"

namespace sirtaki {

HostAggregator::HostAggregator(const HostMap& hosts, HostRange here)
    : here_(here), sets_(hosts.size()), rosters_(hosts, sets_) {}

// ---- From the ranks ----

void HostAggregator::receive_up(const Reporters& from, std::string_view message, int64_t now_ns) {
  Reader in(message);
  const Up kind = in.get<Up>();
  if (kind == Up::kReady || kind == Up::kCarry) {
    const Request* known = find_known(in.get<uint32_t>());
    return known == nullptr ? pass(from, message) : report(from, *known, message, now_ns);
  }
  if (kind != Up::kRequest) return pass(from, message);
  const Request request = Request::decode(in);
  if (request.kind != Kind::kJoin) return report(from, request, message, now_ns);
  pass(from, message);
  joined_[request.set] += static_cast<int>(from.ranks.size());
}

void HostAggregator::report(const Reporters& from, const Request& request, std::string_view message,
                            int64_t now_ns) {
  if (!sets_.contains(request.set)) return pass(from, message);
  const Roster& members = rosters_.of(request.set);
  for (const HostRange& hosts : from.hosts) {
    report(members.of_hosts(hosts), {{}, {hosts}}, request, message, now_ns);
  }
  for (const int rank : from.ranks) {
    report(members.of_rank(rank), {{rank}, {}}, request, message, now_ns);
  }
}

void HostAggregator::report(Stretch who, const Reporters& from, const Request& request,
                            std::string_view message, int64_t now_ns) {
  if (who.size() == 0) return pass(from, message);  // the sequencer will refuse it
  Roster& members = rosters_.of(request.set);
  members.number(who, request, [&](Stretch some, uint64_t ordinal) {
    const std::string key = match_key(request, ordinal);
    const auto [found, is_new] = pending_.try_emplace(key, request.set, members, here_, turns_);
    turns_ += is_new ? 1 : 0;
    Pending& pending = found->second;
    if (some.size() == who.size()) return hold(pending, some, from, message, now_ns);
    hold(pending, some, {{members.rank_at(some.begin)}, {}}, message, now_ns);
  });
}

void HostAggregator::hold(Pending& pending, Stretch who, const Reporters& from,
                          std::string_view message, int64_t now_ns) {
  if (pending.reported.contains_any(who)) return pass(from, message);  // this too
  pending.reported.add(who);
  if (pending.held.empty()) {
    const auto next = holding_.upper_bound(pending.turn);
    pending.since_ns = next == holding_.end() ? now_ns : next->second->since_ns;
    holding_.emplace_hint(next, pending.turn, &pending);
  }
  Held& held = held_as(pending, message);
  held.from.add(from);
  held.members += who.size();
  Reader in(message);
  if (in.get<Up>() == Up::kCarry) pending.carried_as = in.get<uint32_t>();
  if (pending.reported.count() >= pending.members - joined(pending.set)) release(pending);
  forget_if_taken();
}

HostAggregator::Held& HostAggregator::held_as(Pending& pending, std::string_view message) {
  const auto same = std::ranges::find(pending.held, message, &Held::message);
  if (same != pending.held.end()) return *same;
  return pending.held.emplace_back(Held{{{}, std::string(message)}});
}

/// Passes the message on unchanged, after all earlier ones.
void HostAggregator::pass(const Reporters& from, std::string_view message) {
  release_all();
  out_.push_back({from, std::string(message)});
}

void HostAggregator::release(Pending& pending) {
  for (Held& held : pending.held) {
    if (held.members == pending.members) held.from = {{}, {here_}};
    out_.push_back({std::move(held.from), std::move(held.message)});
  }
  pending.held.clear();
  holding_.erase(pending.turn);
}

void HostAggregator::release_all() {
  while (!holding_.empty()) release(*holding_.begin()->second);
}

int HostAggregator::joined(int32_t set) const {
  const auto found = joined_.find(set);
  return found == joined_.end() ? 0 : found->second;
}

const Request* HostAggregator::find_known(uint32_t id) const {
  const auto found = known_.find(id);
  if (found != known_.end()) return &found->second;
  const auto old = forgotten_.find(id);
  return old != forgotten_.end() ? &old->second : nullptr;
}

std::vector<HostAggregator::Report> HostAggregator::take(int64_t now_ns) {
  while (deadline() <= now_ns) release(*holding_.begin()->second);
  return std::exchange(out_, {});
}

int64_t HostAggregator::deadline() const {
  return holding_.empty() ? kNever : holding_.begin()->second->since_ns + kHoldNs;
}

// ---- From the sequencer ----

void HostAggregator::receive_down(std::string_view message) {
  Reader in(message);
  switch (in.get<Down>()) {
    case Down::kBatch:
      return learn_batch(in);
    case Down::kError:
      return forget(in.get_string());
    case Down::kFlush:
      // The sequencer flushes again only after all ranks have forgotten the ids of the last flush.
      forgotten_ = std::exchange(known_, {});
      offer_.reset();
      return;
    case Down::kTune:
    case Down::kShutdown:
    case Down::kMeet:
    case Down::kTell:
      return;
    case Down::kOffer:
      return learn_offer(in);
  }
}

void HostAggregator::learn_batch(Reader& in) {
  const auto count = in.get<uint32_t>();
  for (uint32_t i = 0; i < count; ++i) {
    const bool full = in.get<bool>();
    const auto id = in.get<uint32_t>();
    const auto ordinal = in.get<uint64_t>();
    if (!full) {
      in.get_string();  // its result
      if (const Request* known = find_known(id)) learn(*known, ordinal);
      continue;
    }
    Response response;
    in(response);
    in.get_string();
    const Request& base = response.base;
    learn(base, ordinal);
    if (id == 0) continue;
    Request& kept = known_[id];
    kept.kind = base.kind;
    kept.name = base.name;
    kept.set = base.set;
  }
}

/// Records that the operation begins on the ranks of this host.
void HostAggregator::learn(const Request& request, uint64_t ordinal) {
  if (request.kind == Kind::kJoin) {
    rosters_.of(request.set).align_ordinals(ordinal);  // the same correction as the sequencer's
    joined_.erase(request.set);
  } else if (changes_sets(request.kind)) {
    learn_set(request);
  }
  forget(match_key(request, ordinal));
}

void HostAggregator::learn_set(const Request& change) {
  if (const std::string why = wrong_change(change, sets_); !why.empty()) {
    throw Error(ErrorCode::kInternal, "the sequencer changed the process sets, but " + why);
  }
  const int32_t set = change.root;
  // Reports for an earlier set with this number do not count for its new members.
  release_all();
  std::erase_if(pending_, [&](const auto& pending) { return pending.second.set == set; });
  rosters_.forget(set);
  offer_.reset();
  joined_.erase(set);
  sets_.change(change);
}

void HostAggregator::learn_offer(Reader& in) {
  const auto id = in.get<uint32_t>();
  const Request* known = find_known(id);
  if (known == nullptr) return;
  offer_ = {id, match_key(*known, in.get<uint64_t>())};
  forget_if_taken();
}

/// A rank here that has numbers from rank 0, and has sent its own, has the result.
void HostAggregator::forget_if_taken() {
  if (!offer_) return;
  const auto found = pending_.find(offer_->key);
  if (found == pending_.end() || found->second.carried_as != offer_->id) return;
  forget(std::exchange(offer_, {})->key);
}

/// The operation is decided: later reports of its name mean another operation.
void HostAggregator::forget(const std::string& key) {
  if (offer_ && offer_->key == key) offer_.reset();
  const auto found = pending_.find(key);
  if (found == pending_.end()) return;
  Pending& pending = found->second;
  if (!pending.held.empty()) {
    while (holding_.begin()->first < pending.turn) release(*holding_.begin()->second);
    release(pending);
  }
  pending_.erase(found);
}

}  // namespace sirtaki
