#include "heap/runs.h"

#include <algorithm>
#include <cstring>

namespace sirtaki::heap {

void Runs::start(void* memory, uint32_t granules) {
  runs_ = static_cast<Run*>(memory);
  runs_[0] = {0, granules, State::kFresh, 0, 0};
  count_ = 1;
  fresh_ = granules;
}

std::optional<uint32_t> Runs::take(State of, uint32_t granules, uint32_t alignment, uint32_t born) {
  const auto first_in = [&](const Run& run) {
    return (run.begin + alignment - 1) / alignment * alignment;
  };
  size_t best = count_;
  for (size_t at = 0; at < count_; ++at) {
    const Run& run = runs_[at];
    if (run.state != of || run.granules < granules) continue;
    if (best < count_ && runs_[best].granules <= run.granules) continue;
    if (uint64_t{first_in(run)} + granules <= run.end()) best = at;
    if (best == at && run.granules == granules) break;
  }
  if (granules == 0 || best == count_) return std::nullopt;
  const size_t at = cut(best, first_in(runs_[best]));
  cut(at, runs_[at].begin + granules);
  become(at, State::kLive);
  runs_[at].born = born;
  top_ = std::max(top_, runs_[at].end());
  return runs_[at].begin;
}

void Runs::hold(uint32_t begin, uint32_t freed) {
  Run& run = runs_[index_of(begin)];
  run.state = State::kHeld;
  run.freed = freed;
}

Runs::Range Runs::most_dirty(uint32_t granules) const {
  const Run* most = nullptr;
  for (const Run* run = runs_; run < runs_ + count_; ++run) {
    if (run->state != State::kDirty) continue;
    if (most == nullptr || run->granules > most->granules) most = run;
  }
  if (most == nullptr) return {0, 0};
  const uint32_t part = std::min(most->granules, granules);
  return {most->end() - part, part};
}

void Runs::clean(Range range) {
  const size_t at = cut(index_of(range.begin), range.begin);
  cut(at, range.begin + range.granules);
  become(at, State::kFresh);
}

size_t Runs::index_of(uint32_t granule) const {
  const auto begins_behind = [](uint32_t wanted, const Run& run) { return wanted < run.begin; };
  const Run* const next = std::upper_bound(runs_, runs_ + count_, granule, begins_behind);
  return static_cast<size_t>(next - runs_) - 1;
}

/// Makes two runs of one where they are not yet; returns the one that begins there, or would.
size_t Runs::cut(size_t at, uint32_t granule) {
  Run& run = runs_[at];
  if (granule == run.begin) return at;
  if (granule == run.end()) return at + 1;
  std::memmove(&run + 1, &run, (count_ - at) * sizeof(Run));
  ++count_;
  runs_[at + 1].granules = run.end() - granule;
  runs_[at + 1].begin = granule;
  run.granules = granule - run.begin;
  return at + 1;
}

/// Gives a run another state, and makes it one with free neighbours of its kind. Returns where it
/// is then.
size_t Runs::become(size_t at, State state) {
  if (uint64_t* const count = count_of(runs_[at].state)) *count -= runs_[at].granules;
  runs_[at].state = state;
  uint64_t* const count = count_of(state);
  if (count == nullptr) return at;
  *count += runs_[at].granules;
  if (at + 1 < count_ && runs_[at + 1].state == state) erase(at + 1);
  if (at == 0 || runs_[at - 1].state != state) return at;
  erase(at);
  return at - 1;
}

/// Makes a run part of the one before it.
void Runs::erase(size_t at) {
  runs_[at - 1].granules += runs_[at].granules;
  --count_;
  std::memmove(runs_ + at, runs_ + at + 1, (count_ - at) * sizeof(Run));
}

/// Where granules of free runs of this kind are counted; null: of no free one.
uint64_t* Runs::count_of(State state) {
  if (state == State::kDirty) return &dirty_;
  return state == State::kFresh ? &fresh_ : nullptr;
}

}  // namespace sirtaki::heap
