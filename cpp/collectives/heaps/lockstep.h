#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/cursor.h"

namespace sirtaki {

/// Walks several streams of one length side by side, whatever their segment borders. The pointer of
/// a segment that is not mapped in this process is null.
class Lockstep {
 public:
  explicit Lockstep(std::vector<const Segments*> streams) {
    for (const Segments* stream : streams) cursors_.emplace_back(*stream);
    at_.resize(cursors_.size());
  }

  /// Calls `visit(pointers, bytes, position in the streams)` for each piece of `range` that is
  /// contiguous in all of them.
  template <class Visit>
  void walk(Range range, Visit&& visit) {
    size_t at = range.begin;
    while (at < range.end) {
      size_t bytes = range.end - at;
      for (size_t s = 0; s < cursors_.size(); ++s) {
        const Segment here = cursors_[s].seek(at);
        at_[s] = here.data;
        bytes = std::min(bytes, here.bytes);
      }
      visit(std::as_const(at_), bytes, at);
      at += bytes;
    }
  }

 private:
  std::vector<Cursor> cursors_;
  std::vector<std::byte*> at_;
};

/// Parts of a stream, in ascending order.
class Ranges {
 public:
  void add(Range range) {
    if (range.bytes() == 0) return;
    bytes_ += range.bytes();
    if (!list_.empty() && list_.back().end == range.begin) {
      list_.back().end = range.end;
    } else {
      list_.push_back(range);
    }
  }
  size_t bytes() const { return bytes_; }
  bool empty() const { return list_.empty(); }
  const std::vector<Range>& list() const { return list_; }

  /// A range of these parts, as if they were concatenated.
  Ranges part(Range wanted) const {
    Ranges part;
    size_t before = 0;
    for (const Range& range : list_) {
      const size_t begin = std::max(wanted.begin, before);
      const size_t end = std::min(wanted.end, before + range.bytes());
      if (begin < end) part.add({range.begin + (begin - before), range.begin + (end - before)});
      before += range.bytes();
    }
    return part;
  }
  /// The contents of these parts in such a stream.
  Segments of(const Segments& stream) const {
    Segments segments;
    Cursor cursor(stream);
    for (const Range& range : list_) {
      cursor.walk(range, [&](std::byte* data, size_t bytes, size_t) { segments.add(data, bytes); });
    }
    return segments;
  }

 private:
  std::vector<Range> list_;
  size_t bytes_ = 0;
};

/// The parts of equally long streams that are mapped here in all of them, and the other parts.
struct Split {
  explicit Split(std::vector<const Segments*> streams) {
    if (streams.empty()) return;
    const size_t bytes = streams.front()->bytes();
    Lockstep(std::move(streams))
        .walk({0, bytes}, [&](const std::vector<std::byte*>& at, size_t piece, size_t position) {
          const bool here = std::find(at.begin(), at.end(), nullptr) == at.end();
          (here ? shared : rest).add({position, position + piece});
        });
  }

  Ranges shared;
  Ranges rest;
};

}  // namespace sirtaki
