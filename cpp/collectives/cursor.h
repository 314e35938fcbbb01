#pragma once

#include <algorithm>
#include <cstring>

#include "collectives/op.h"
#include "collectives/plan.h"

namespace sirtaki {

/// Walks ranges of a stream, each beginning where or after the one before ended.
class Cursor {
 public:
  explicit Cursor(const Segments& stream) : segments_(stream.list()) {}

  /// Calls `visit(pointer, bytes, position in the stream)` for each contiguous piece of `range`.
  template <class Visit>
  void walk(Range range, Visit visit) {
    size_t at = range.begin;
    while (at < range.end) {
      while (start_ + segments_[index_].bytes <= at) start_ += segments_[index_++].bytes;
      const Segment& segment = segments_[index_];
      const size_t offset = at - start_;
      const size_t bytes = std::min(segment.bytes - offset, range.end - at);
      visit(segment.data + offset, bytes, at);
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

/// Copies a whole stream to another of the same length, segment borders may differ.
void copy_stream(const Segments& from, const Segments& to);

}  // namespace sirtaki
