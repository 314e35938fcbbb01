#include "engine/reports.h"

#include <algorithm>

namespace sirtaki {
namespace {

[[noreturn]] void refuse_report(int rank, const std::string& why) {
  throw Error(ErrorCode::kInternal, "rank " + std::to_string(rank) + " " + why);
}

}  // namespace

bool has_sizes(Kind kind) {
  return kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kAlltoall;
}

std::pair<Pending&, bool> Reports::pending_for(int rank, const Request& request, int64_t now_ns) {
  const int member = sets_.index(request.set, rank);
  if (member < 0) refuse_report(rank, "reports an operation of a process set that it is not in");
  const uint64_t ordinal = next_ordinal(rank, request);
  std::string key = match_key(request, ordinal);
  std::unique_ptr<Pending>& found = pending_[key];
  if (found != nullptr) return {*found, false};
  found = std::make_unique<Pending>();
  found->key = std::move(key);
  found->ordinal = ordinal;
  found->set = request.set;
  found->first_rank = rank;
  found->base = request;
  found->reported.resize(sets_.ranks(request.set).size());
  found->since_ns = now_ns;
  if (sets_.index(request.set, 0) < 0) ++awaited_;
  return {*found, true};
}

uint64_t Reports::next_ordinal(int rank, const Request& request) {
  return request.name.empty() ? ordinals_[static_cast<size_t>(rank)][request.set]++ : 0;
}

void Reports::report(Pending& pending, int rank, const Request& request) {
  expand(pending);
  merge(pending, rank, request);
  mark(pending, rank);
}

void Reports::report(Pending& pending, int rank, uint32_t id) {
  if (pending.count == 0) {
    pending.id = id;
  } else if (pending.id != id) {
    const IdCache::Known& known = cache_.at(id);
    const auto member = static_cast<size_t>(sets_.index(pending.set, rank));
    expand(pending);
    merge(pending, rank, known.requests.empty() ? known.response.base : known.requests[member]);
  }
  mark(pending, rank);
}

bool Reports::report(Pending& pending, const std::vector<int>& ranks, uint32_t id) {
  if (pending.count == 0) pending.id = id;
  if (pending.id != id) return false;
  for (const int rank : ranks) mark(pending, rank);
  return true;
}

void Reports::mark(Pending& pending, int rank) {
  const int member = sets_.index(pending.set, rank);
  if (member < 0) refuse_report(rank, "reports an operation of a process set that it is not in");
  if (pending.reported[static_cast<size_t>(member)]) refuse_report(rank, "reports twice");
  pending.reported[static_cast<size_t>(member)] = true;
  ++pending.count;
  if (rank == 0) ++awaited_;
}

void Reports::merge(Pending& pending, int rank, const Request& request) {
  if (pending.error.empty()) {
    // In the order of ranks, so that the message does not depend on who came first.
    pending.error = pending.first_rank < rank
                        ? mismatch(pending.base, pending.first_rank, request, rank)
                        : mismatch(request, rank, pending.base, pending.first_rank);
  }
  if (!has_sizes(request.kind)) return;
  pending.requests.resize(pending.reported.size());
  pending.requests[static_cast<size_t>(sets_.index(pending.set, rank))] = request;
}

std::vector<int> Reports::missing(const Pending& pending, const Joins& joins) const {
  std::vector<int> ranks;
  if (pending.whole()) return ranks;
  const std::vector<int>& members = sets_.ranks(pending.set);
  for (int m = 0; m < pending.members(); ++m) {
    const auto index = static_cast<size_t>(m);
    if (pending.reported[index] || joins.contains(pending.set, m)) continue;
    ranks.push_back(members[index]);
  }
  return ranks;
}

std::unique_ptr<Pending> Reports::take(const Pending& pending) {
  if (sets_.index(pending.set, 0) < 0 || pending.reported[0]) --awaited_;
  return std::move(pending_.extract(pending.key).mapped());
}

// ---- Reports by id ----

void Reports::expand(Pending& pending) {
  if (pending.id == 0) return;
  const IdCache::Known& known = cache_.at(pending.id);
  pending.id = 0;
  for (size_t m = 0; m < pending.reported.size(); ++m) {
    if (!pending.reported[m]) continue;
    merge(pending, sets_.ranks(pending.set)[m],
          known.requests.empty() ? known.response.base : known.requests[m]);
  }
}

void Reports::expand_whole(Pending& pending) const {
  if (pending.id == 0) return;
  const IdCache::Known& known = cache_.at(pending.id);
  pending.base = known.response.base;
  pending.requests = known.requests;
  pending.id = 0;
}

void Reports::expand_old() {
  for (auto& [key, pending] : pending_) {
    if (pending->id != 0 && !cache_.is_current(pending->id)) expand(*pending);
  }
}

const Request& Reports::base_of(const Pending& pending) const {
  return pending.id != 0 ? cache_.at(pending.id).response.base : pending.base;
}

// ---- What waits ----

std::vector<Pending*> Reports::of_set(int32_t set) const {
  std::vector<Pending*> found = all();
  std::erase_if(found, [&](const Pending* pending) { return pending->set != set; });
  return found;
}

std::vector<Pending*> Reports::all() const {
  std::vector<Pending*> found;
  for (const auto& [key, pending] : pending_) found.push_back(pending.get());
  return found;
}

uint64_t Reports::align_ordinals(int32_t set) {
  uint64_t highest = 0;
  for (const int rank : sets_.ranks(set)) {
    highest = std::max(highest, ordinals_[static_cast<size_t>(rank)][set]);
  }
  for (const int rank : sets_.ranks(set)) ordinals_[static_cast<size_t>(rank)][set] = highest;
  return highest;
}

void Reports::forget_ordinals(int32_t set) {
  for (auto& ordinals : ordinals_) ordinals.erase(set);
}

}  // namespace sirtaki
