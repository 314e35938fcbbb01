#include "python/engine/claims.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "collectives/kinds.h"
#include "engine/requests/checks.h"

namespace sirtaki {
namespace {

bool by_begin(const Extent& a, const Extent& b) { return a.begin < b.begin; }

void sort(std::vector<Extent>& places) {
  if (!std::is_sorted(places.begin(), places.end(), by_begin)) {
    std::sort(places.begin(), places.end(), by_begin);
  }
}

/// The one of `places`, which do not overlap each other, that overlaps this one; null: none does.
const Extent* find(const std::vector<Extent>& places, const Extent& place) {
  const auto behind =
      std::lower_bound(places.begin(), places.end(), place.end,
                       [](const Extent& p, uintptr_t end) { return p.begin < end; });
  if (behind == places.begin()) return nullptr;
  const Extent& last = *(behind - 1);
  return last.end > place.begin ? &last : nullptr;
}

bool any_overlaps(const std::vector<Extent>& places, const std::vector<Extent>& others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const Extent& place) { return find(places, place) != nullptr; });
}

void add(std::vector<Extent>& places, const void* data, size_t bytes, size_t tensor) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  // The agreement refuses a tensor without memory, with its own error message.
  if (bytes > 0 && data != nullptr) places.push_back({begin, begin + bytes, tensor});
}

size_t bytes_of(const Request& request, size_t tensor) {
  // All pieces of a scatter have the same shape.
  const Shape& shape = request.shapes[std::min(tensor, request.shapes.size() - 1)];
  return static_cast<size_t>(elements(shape)) * size_of(request.dtype);
}

int index_of(const Submission& asked, Engine& engine) {
  const auto sets = engine.process_sets();
  const auto found = sets.find(asked.request.set);
  if (found == sets.end()) return 0;
  return static_cast<int>(std::ranges::find(found->second, engine.rank()) - found->second.begin());
}

/// Whether the operation gives the right result although these two of its tensors overlap: this
/// rank's part is already at its place in the whole.
bool in_place(const Submission& asked, Engine& engine, const Extent& read, const Extent& written) {
  const auto own = static_cast<size_t>(index_of(asked, engine));
  switch (traits_of(asked.request.kind).layout) {
    case Layout::kGathered:
      return read.begin == written.begin + own * (read.end - read.begin) && read.end <= written.end;
    case Layout::kDealt:
      return written.begin == read.begin + own * (written.end - written.begin) &&
             written.end <= read.end;
    case Layout::kPieces:
      // Data that are already in place are not written.
      return own < asked.inputs.size() &&
             reinterpret_cast<uintptr_t>(asked.inputs[own]) == written.begin;
    default:
      return false;
  }
}

[[noreturn]] void refuse(const Submission& asked, const std::string& what) {
  throw Overlap(ErrorCode::kInvalid,
                describe(asked.request, 0) + ": " + what +
                    " share memory, so the result would be undefined; give the operation copies",
                Scope::kCall);
}

}  // namespace

uintptr_t Uses::begin() const {
  uintptr_t first = std::numeric_limits<uintptr_t>::max();
  if (!reads.empty()) first = reads.front().begin;
  return writes.empty() ? first : std::min(first, writes.front().begin);
}

uintptr_t Uses::end() const {
  uintptr_t last = writes.empty() ? 0 : writes.back().end;
  for (const Extent& place : reads) last = std::max(last, place.end);
  return last;
}

bool Uses::overlaps(const Uses& other) const {
  return any_overlaps(writes, other.writes) || any_overlaps(writes, other.reads) ||
         any_overlaps(other.writes, reads);
}

Uses uses_of(const Submission& asked, Engine& engine) {
  const Request& request = asked.request;
  Uses memory;
  if (request.shapes.empty()) return memory;
  if (asked.encoded.empty() && !malformed(request).empty()) return memory;
  const KindTraits& kind = traits_of(request.kind);
  const bool receives = !kind.to_root() || request.root == engine.rank();
  for (size_t t = 0; t < asked.outputs.size(); ++t) {
    add(memory.writes, asked.outputs[t], bytes_of(request, t), t);
  }
  for (size_t t = 0; t < asked.results.size() && receives; ++t) {
    add(memory.writes, asked.results[t].data, asked.results[t].bytes, t);
  }
  for (size_t t = 0; t < asked.inputs.size(); ++t) {
    const bool replaced = kind.layout != Layout::kPieces && t < asked.outputs.size() &&
                          asked.outputs[t] == asked.inputs[t];
    if (!replaced) add(memory.reads, asked.inputs[t], bytes_of(request, t), t);
  }
  sort(memory.writes);
  for (size_t i = 1; i < memory.writes.size(); ++i) {
    const Extent &a = memory.writes[i - 1], &b = memory.writes[i];
    if (b.begin >= a.end) continue;
    const auto [first, second] = std::minmax(a.tensor, b.tensor);
    refuse(asked, "tensors " + std::to_string(first) + " and " + std::to_string(second) +
                      " of the group, which are written,");
  }
  sort(memory.reads);
  for (const Extent& read : memory.reads) {
    const Extent* const written = find(memory.writes, read);
    if (written == nullptr || in_place(asked, engine, read, *written)) continue;
    refuse(asked, "input " + std::to_string(read.tensor) + " and output " +
                      std::to_string(written->tensor));
  }
  return memory;
}

Claims& Claims::of_process() {
  static auto* claims = new Claims;  // engines may outlive static objects
  return *claims;
}

void Claims::add(Claim claim) {
  const std::lock_guard lock(mutex_);
  if (claims_.size() >= most_) forget_done();
  begins_.push_back(claim.memory.begin());
  ends_.push_back(claim.memory.end());
  claims_.push_back(std::move(claim));
}

Claims::Claim Claims::before(const Uses& memory) {
  const std::lock_guard lock(mutex_);
  const uintptr_t begin = memory.begin();
  const uintptr_t end = memory.end();
  for (size_t i = 0; i < claims_.size(); ++i) {
    if (begins_[i] >= end || ends_[i] <= begin || !claims_[i].memory.overlaps(memory)) continue;
    const auto handle = claims_[i].handle.lock();
    if (handle != nullptr && !handle->done()) return claims_[i];
  }
  return {};
}

void Claims::forget_done() {
  std::erase_if(claims_, [](const Claim& claim) {
    const auto handle = claim.handle.lock();
    return handle == nullptr || handle->done();
  });
  begins_.clear();
  ends_.clear();
  for (const Claim& claim : claims_) {
    begins_.push_back(claim.memory.begin());
    ends_.push_back(claim.memory.end());
  }
  most_ = std::max<size_t>(64, 2 * claims_.size());
}

}  // namespace sirtaki
