#include <bit>

#include "heap/runs.h"

namespace sirtaki::heap {
namespace {

// A longer search costs more than the better fit is worth.
constexpr int kMostLookedAt = 16;

}  // namespace

uint32_t Bins::bin_of(uint32_t granules) {
  if (granules < kExact) return granules;
  const uint32_t power = static_cast<uint32_t>(std::bit_width(granules)) - 1;
  const uint32_t sixteenth = (granules >> (power - 4)) & 15;
  return kExact + (power - 5) * 16 + sixteenth;
}

void Bins::insert(Run* runs, uint32_t at) {
  const uint32_t bin = bin_of(runs[at].granules);
  const uint32_t head = heads_[bin] - 1;
  runs[at].previous = kNone;
  runs[at].next = head;
  if (head != kNone) runs[head].previous = at;
  heads_[bin] = at + 1;
  used_[bin / 64] |= uint64_t{1} << (bin % 64);
  granules_ += runs[at].granules;
}

void Bins::remove(Run* runs, uint32_t at) {
  const Run& run = runs[at];
  if (run.next != kNone) runs[run.next].previous = run.previous;
  if (run.previous != kNone) {
    runs[run.previous].next = run.next;
  } else {
    const uint32_t bin = bin_of(run.granules);
    heads_[bin] = run.next + 1;
    if (run.next == kNone) used_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
  }
  granules_ -= run.granules;
}

uint32_t Bins::find(const Run* runs, uint32_t granules) const {
  const uint32_t bin = bin_of(granules);
  const uint32_t found = best_in(runs, bin, granules);
  if (found != kNone) return found;
  const uint32_t larger = first_used(bin + 1);
  return larger == kNone ? kNone : best_in(runs, larger, granules);
}

uint32_t Bins::largest() const {
  for (size_t word = used_.size(); word-- > 0;) {
    if (used_[word] == 0) continue;
    const auto bit = static_cast<size_t>(std::bit_width(used_[word])) - 1;
    return heads_[word * 64 + bit] - 1;
  }
  return kNone;
}

uint32_t Bins::best_in(const Run* runs, uint32_t bin, uint32_t granules) const {
  uint32_t best = kNone;
  int looked_at = 0;
  for (uint32_t at = heads_[bin] - 1; at != kNone; at = runs[at].next) {
    if (runs[at].granules == granules) return at;
    const bool fits = runs[at].granules > granules;
    if (fits && (best == kNone || runs[at].granules < runs[best].granules)) best = at;
    // Runs of a bin may all be a little too short: some of them fits, or the next bin does.
    if (++looked_at == kMostLookedAt) break;
  }
  return best;
}

uint32_t Bins::first_used(uint32_t bin) const {
  if (bin >= kBins) return kNone;
  uint64_t bits = used_[bin / 64] & (~uint64_t{0} << (bin % 64));
  for (size_t word = bin / 64;; bits = used_[word]) {
    if (bits != 0) return static_cast<uint32_t>(word * 64 + std::countr_zero(bits));
    if (++word == used_.size()) return kNone;
  }
}

}  // namespace sirtaki::heap
