#include "heap/runs.h"

#include <algorithm>
#include <bit>

namespace sirtaki::heap {
namespace {

constexpr uint32_t kBits = 64;

bool is_free(State state) { return state == State::kFresh || state == State::kDirty; }

size_t words_for(uint32_t granules) { return (size_t{granules} + kBits) / kBits; }

}  // namespace

size_t Runs::bytes_for(uint32_t granules) {
  return words_for(granules) * sizeof(uint64_t) + size_t{granules} * sizeof(Run);
}

void Runs::start(void* memory, uint32_t granules) {
  begins_ = static_cast<uint64_t*>(memory);
  runs_ = reinterpret_cast<Run*>(begins_ + words_for(granules));
  size_ = granules;
  add_free(0, granules, State::kFresh);
}

std::optional<uint32_t> Runs::take(State of, uint32_t granules, uint32_t alignment, uint32_t born) {
  const uint32_t enough = granules + alignment - 1;
  if (granules == 0 || granules > size_ || enough > size_) return std::nullopt;
  const uint32_t found = bins_of(of).find(runs_, enough);
  if (found == Bins::kNone) return std::nullopt;
  const uint32_t end = found + remove_free(found);
  const uint32_t at = (found + alignment - 1) / alignment * alignment;
  // Its neighbours are not of its kind: what is left over needs no merging.
  if (at > found) place(found, at - found, of);
  if (end > at + granules) place(at + granules, end - at - granules, of);
  place(at, granules, State::kLive);
  runs_[at].born = born;
  top_ = std::max(top_, at + granules);
  return at;
}

void Runs::give(uint32_t at) {
  const uint32_t granules = runs_[at].granules;
  erase(at);
  add_free(at, granules, State::kDirty);
}

void Runs::hold(uint32_t at, uint32_t freed) {
  runs_[at].state = State::kHeld;
  runs_[at].freed = freed;
}

Runs::Range Runs::begin_return(uint32_t granules) {
  const uint32_t found = dirty_.largest();
  if (found == Bins::kNone) return {0, 0};
  const uint32_t all = remove_free(found), part = std::min(all, granules);
  if (all > part) place(found, all - part, State::kDirty);
  const uint32_t at = found + all - part;
  place(at, part, State::kReturning);
  return {at, part};
}

void Runs::end_return(Range range, State state) {
  erase(range.at);
  add_free(range.at, range.granules, state);
}

uint32_t Runs::begin_of(uint32_t granule) const {
  size_t word = granule / kBits;
  uint64_t bits = begins_[word] & (~uint64_t{0} >> (kBits - 1 - granule % kBits));
  while (bits == 0) bits = begins_[--word];
  return static_cast<uint32_t>(word * kBits) + static_cast<uint32_t>(std::bit_width(bits)) - 1;
}

/// Writes down a run; a free one has no free neighbour of its kind.
void Runs::place(uint32_t at, uint32_t granules, State state) {
  runs_[at].state = state;
  runs_[at].granules = granules;
  begins_[at / kBits] |= uint64_t{1} << (at % kBits);
  if (is_free(state)) bins_of(state).insert(runs_, at);
}

void Runs::erase(uint32_t at) {
  runs_[at].state = State::kInner;
  begins_[at / kBits] &= ~(uint64_t{1} << (at % kBits));
}

void Runs::add_free(uint32_t at, uint32_t granules, State state) {
  const uint32_t next = at + granules;
  if (next < size_ && runs_[next].state == state) granules += remove_free(next);
  if (at > 0) {
    const uint32_t before = begin_of(at - 1);
    if (runs_[before].state == state) {
      granules += remove_free(before);
      at = before;
    }
  }
  place(at, granules, state);
}

uint32_t Runs::remove_free(uint32_t at) {
  bins_of(runs_[at].state).remove(runs_, at);
  erase(at);
  return runs_[at].granules;
}

}  // namespace sirtaki::heap
