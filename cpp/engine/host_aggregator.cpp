#include "engine/host_aggregator.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace sirtaki {

HostAggregator::HostAggregator(int size, std::vector<int> ranks)
    : ranks_(std::move(ranks)), sets_(size), ordinals_(ranks_.size()) {}

// ---- From the ranks ----

void HostAggregator::receive_up(int rank, std::string_view message, int64_t now_ns) {
  Reader in(message);
  const Up kind = in.get<Up>();
  if (kind == Up::kReady) {
    const Request* known = find_known(in.get<uint32_t>());
    return known == nullptr ? pass(rank, message) : report(rank, *known, message, now_ns);
  }
  if (kind != Up::kRequest) return pass(rank, message);
  const Request request = Request::decode(in);
  if (request.kind != Kind::kJoin) return report(rank, request, message, now_ns);
  pass(rank, message);
  ++joined_[request.set];
}

void HostAggregator::report(int rank, const Request& request, std::string_view message,
                            int64_t now_ns) {
  const auto place = static_cast<size_t>(place_of(rank));
  const uint64_t ordinal = request.name.empty() ? ordinals_[place][request.set]++ : 0;
  if (!sets_.contains(request.set)) return pass(rank, message);
  const std::string key = match_key(request, ordinal);
  Pending& pending = pending_[key];
  pending.reported.resize(ranks_.size());
  if (!pending.reported[place]) ++pending.count;
  pending.reported[place] = true;
  if (pending.held.empty()) {
    pending.since_ns = now_ns;
    holding_.push_back(key);
  }
  const auto same = std::find_if(pending.held.begin(), pending.held.end(),
                                 [&](const Report& held) { return held.message == message; });
  if (same != pending.held.end()) {
    same->ranks.push_back(rank);
  } else {
    pending.held.push_back({{rank}, std::string(message)});
  }
  if (pending.count >= expected(request.set)) release(pending);
}

/// Sends the message on as it is, behind everything that came before it.
void HostAggregator::pass(int rank, std::string_view message) {
  release_all();
  out_.push_back({{rank}, std::string(message)});
}

void HostAggregator::release(Pending& pending) {
  for (Report& report : pending.held) out_.push_back(std::move(report));
  pending.held.clear();
  while (!holding_.empty() && !is_held(holding_.front())) holding_.pop_front();
}

void HostAggregator::release_all() {
  while (!holding_.empty()) release(pending_.at(holding_.front()));
}

bool HostAggregator::is_held(const std::string& key) const {
  const auto found = pending_.find(key);
  return found != pending_.end() && !found->second.held.empty();
}

int HostAggregator::expected(int32_t set) {
  auto known = members_.find(set);
  if (known == members_.end()) {
    const auto here = [&](int rank) { return sets_.index(set, rank) >= 0; };
    const auto count = std::count_if(ranks_.begin(), ranks_.end(), here);
    known = members_.emplace(set, static_cast<int>(count)).first;
  }
  const auto joined = joined_.find(set);
  return known->second - (joined == joined_.end() ? 0 : joined->second);
}

int HostAggregator::place_of(int rank) const {
  return static_cast<int>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
}

const Request* HostAggregator::find_known(uint32_t id) const {
  const auto found = known_.find(id);
  if (found != known_.end()) return &found->second;
  const auto old = forgotten_.find(id);
  return old != forgotten_.end() ? &old->second : nullptr;
}

std::vector<HostAggregator::Report> HostAggregator::take(int64_t now_ns) {
  while (deadline() <= now_ns) release(pending_.at(holding_.front()));
  return std::exchange(out_, {});
}

int64_t HostAggregator::deadline() const {
  return holding_.empty() ? kNever : pending_.at(holding_.front()).since_ns + kHoldNs;
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
      // The sequencer flushes again only when all ranks have forgotten the ids of the last time.
      forgotten_ = std::exchange(known_, {});
      return;
    case Down::kTune:
    case Down::kShutdown:
    case Down::kMeet:
      return;
  }
}

void HostAggregator::learn_batch(Reader& in) {
  const auto count = in.get<uint32_t>();
  for (uint32_t i = 0; i < count; ++i) {
    const bool full = in.get<bool>();
    const auto id = in.get<uint32_t>();
    const auto ordinal = in.get<uint64_t>();
    if (!full) {
      if (const Request* known = find_known(id)) learn(*known, ordinal);
      continue;
    }
    const Request base = Response::decode(in).base;
    learn(base, ordinal);
    if (id == 0) continue;
    Request& kept = known_[id];
    kept.kind = base.kind;
    kept.name = base.name;
    kept.set = base.set;
  }
}

/// The operation begins on the ranks of this host.
void HostAggregator::learn(const Request& request, uint64_t ordinal) {
  if (request.kind == Kind::kJoin) {
    // The same correction as the sequencer's.
    for (auto& ordinals : ordinals_) ordinals[request.set] = ordinal;
    joined_.erase(request.set);
  } else if (request.kind == Kind::kAddSet) {
    sets_.add(request.root, {request.splits.begin(), request.splits.end()});
    for (auto& ordinals : ordinals_) ordinals.erase(request.root);
  } else if (request.kind == Kind::kRemoveSet) {
    sets_.remove(request.root);
    members_.erase(request.root);
    joined_.erase(request.root);
  }
  forget(match_key(request, ordinal));
}

/// The operation is decided: who reports its name from now on means another one.
void HostAggregator::forget(const std::string& key) {
  const auto found = pending_.find(key);
  if (found == pending_.end()) return;
  if (!found->second.held.empty()) release(found->second);
  pending_.erase(found);
}

}  // namespace sirtaki
