#pragma once

#include <algorithm>
#include <cstring>

#include "collectives/op.h"
#include "collectives/plan.h"

namespace sirtaki {

/// Finds positions of a stream in its segments: fast near where it was last.
class Cursor {
 public:
  explicit Cursor(const Segments& stream) : segments_(stream.list()) {}

  /// What is left of the segment that has this position; it may lie nowhere in this process.
  Segment seek(size_t at) {
    while (at < start_) start_ -= segments_[--index_].bytes;
    while (start_ + segments_[index_].bytes <= at) start_ += segments_[index_++].bytes;
    const Segment& segment = segments_[index_];
    const size_t offset = at - start_;
    return {segment.data == nullptr ? nullptr : segment.data + offset, segment.bytes - offset};
  }

  /// Calls `visit(pointer, bytes, position in the stream)` for each contiguous piece of `range`.
  template <class Visit>
  void walk(Range range, Visit visit) {
    for (size_t at = range.begin; at < range.end;) {
      const Segment here = seek(at);
      const size_t bytes = std::min(here.bytes, range.end - at);
      visit(here.data, bytes, at);
      at += bytes;
    }
  }

  void copy_to(std::byte* to, Range range) {
    walk(range, [&](const std::byte* from, size_t bytes, size_t at) {
      std::memcpy(to + (at - range.begin), from, bytes);
    });
  }

  void copy_from(const std::byte* from, Range range) {
    walk(range, [&](std::byte* to, size_t bytes, size_t at) {
      std::memcpy(to, from + (at - range.begin), bytes);
    });
  }

 private:
  const std::vector<Segment>& segments_;
  size_t index_ = 0;
  size_t start_ = 0;  // position of segment index_ in the stream
};

/// Where a range of a stream lies: in the user's segments, or in a buffer whose first byte has
/// position `origin`.
class Place {
 public:
  explicit Place(Cursor& user) : user_(&user) {}
  Place(std::byte* buffer, size_t origin) : buffer_(buffer), origin_(origin) {}

  template <class Visit>
  void walk(Range range, Visit visit) const {
    if (user_ != nullptr) return user_->walk(range, visit);
    if (range.bytes() > 0) visit(buffer_ + (range.begin - origin_), range.bytes(), range.begin);
  }

 private:
  Cursor* user_ = nullptr;
  std::byte* buffer_ = nullptr;
  size_t origin_ = 0;
};

/// Copies a whole stream to another of the same length, segment borders may differ.
void copy_stream(const Segments& from, const Segments& to);

}  // namespace sirtaki
