#include "engine/sequencer/reports.h"

#include <algorithm>

namespace sirtaki {

[[noreturn]] void refuse_report(int rank, const std::string& why) {
  throw Error(ErrorCode::kInternal, "rank " + std::to_string(rank) + " " + why);
}

std::pair<Pending*, bool> Reports::pending_for(Stretch who, const Request& request,
                                               uint64_t ordinal) {
  std::string key = match_key(request, ordinal);
  std::unique_ptr<Pending>& found = pending_[key];
  if (found != nullptr) return {found.get(), false};
  const Roster& members = roster(request.set);
  found = std::make_unique<Pending>(members.size());
  found->key = std::move(key);
  found->ordinal = ordinal;
  found->set = request.set;
  found->first_rank = members.rank_at(who.begin);
  found->absent = joins_.count(request.set);
  if (sets_.index(request.set, 0) < 0) ++awaited_;
  return {found.get(), true};
}

void Reports::report(Pending& pending, Stretch who, const Request& request) {
  if (pending.reported.count() == 0) pending.request = request;
  expand(pending);
  merge(pending, who, request);
  mark(pending, who);
}

void Reports::report(Pending& pending, Stretch who, const KnownReport& report) {
  const IdCache::Known& known = report.known;
  if (pending.reported.count() == 0) {
    pending.known = &known;
  } else if (pending.known != &known) {
    expand(pending);
    merge_known(pending, who, known);
  }
  mark(pending, who);
  if (!report.numbers.empty()) keep(pending, who, report.numbers);
}

void Reports::keep(Pending& pending, Stretch who, std::string_view numbers) {
  pending.numbers.resize(static_cast<size_t>(pending.members) * numbers.size());
  for (int place = who.begin; place < who.end; ++place) {
    numbers.copy(pending.numbers.data() + static_cast<size_t>(place) * numbers.size(),
                 numbers.size());
  }
  pending.carriers += who.size();
}

void Reports::mark(Pending& pending, Stretch who) {
  const Roster& members = roster(pending.set);
  if (pending.reported.contains_any(who)) {
    refuse_report(members.rank_at(who.begin), "reports twice");
  }
  pending.reported.add(who);
  if (pending.absent > 0) {
    for (int place = who.begin; place < who.end; ++place) {
      pending.absent -= joins_.contains(pending.set, place) ? 1 : 0;
    }
  }
  // The lowest rank has the first place.
  if (who.begin == 0 && members.rank_at(0) == 0) ++awaited_;
}

void Reports::join(int32_t set, int place) {
  for (Pending* pending : of_set(set)) pending->absent += pending->reported.contains(place) ? 0 : 1;
}

void Reports::merge(Pending& pending, Stretch who, const Request& request) {
  const Roster& members = roster(pending.set);
  const int rank = members.rank_at(who.begin);
  if (pending.error.empty()) {
    // In the order of ranks, so that the message does not depend on which report came first.
    pending.error = pending.first_rank < rank
                        ? mismatch(pending.request, pending.first_rank, request, rank)
                        : mismatch(request, rank, pending.request, pending.first_rank);
  }
  if (!has_sizes(request)) return;
  pending.requests.resize(static_cast<size_t>(pending.members));
  for (int place = who.begin; place < who.end; ++place) {
    const int member = sets_.index(pending.set, members.rank_at(place));
    pending.requests[static_cast<size_t>(member)] = request;
  }
}

/// Merges, for each of them, the request that the id stands for.
void Reports::merge_known(Pending& pending, Stretch who, const IdCache::Known& known) {
  if (known.requests.empty()) return merge(pending, who, known.response.base);
  const Roster& members = roster(pending.set);
  for (int place = who.begin; place < who.end; ++place) {
    const int member = sets_.index(pending.set, members.rank_at(place));
    merge(pending, {place, place + 1}, known.requests[static_cast<size_t>(member)]);
  }
}

template <class Picks>
std::vector<int> Reports::ranks_of(const Pending& pending, Picks picks) {
  std::vector<int> ranks;
  const Roster& members = rosters_.of(pending.set);
  for (int place = 0; place < pending.members; ++place) {
    if (picks(place)) ranks.push_back(members.rank_at(place));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> Reports::reporters(const Pending& pending) {
  return ranks_of(pending, [&](int place) { return pending.reported.contains(place); });
}

std::vector<int> Reports::missing(const Pending& pending) {
  return ranks_of(pending, [&](int place) {
    return !pending.reported.contains(place) && !joins_.contains(pending.set, place);
  });
}

std::unique_ptr<Pending> Reports::take(const Pending& pending) {
  if (sets_.index(pending.set, 0) < 0 || pending.reported.contains(0)) --awaited_;
  return std::move(pending_.extract(pending.key).mapped());
}

// ---- Reports by id ----

void Reports::expand(Pending& pending) {
  if (pending.known == nullptr) return;
  const IdCache::Known& known = *std::exchange(pending.known, nullptr);
  pending.request = known.response.base;
  if (known.requests.empty()) return;
  for (int place = 0; place < pending.members; ++place) {
    if (pending.reported.contains(place)) merge_known(pending, {place, place + 1}, known);
  }
}

void Pending::expand_whole() {
  if (known == nullptr) return;
  request = known->response.base;
  requests = known->requests;
  known = nullptr;
}

// ---- Pending operations ----

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

}  // namespace sirtaki
