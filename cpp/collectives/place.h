#pragma once

#include <algorithm>
#include <vector>

#include "collectives/op.h"
#include "collectives/plan.h"

namespace sirtaki {

/// Finds any position of a stream in its segments.
class Locator {
 public:
  explicit Locator(const Segments& stream) : segments_(stream.list()) {
    size_t at = 0;
    for (const Segment& segment : segments_) {
      starts_.push_back(at);
      at += segment.bytes;
    }
  }

  /// Calls `visit(pointer, bytes, position in the stream)` for each contiguous piece of `range`.
  template <class Visit>
  void walk(Range range, Visit visit) const {
    if (range.begin >= range.end) return;
    const auto behind = std::upper_bound(starts_.begin(), starts_.end(), range.begin);
    size_t index = static_cast<size_t>(behind - starts_.begin()) - 1;
    for (size_t at = range.begin; at < range.end; ++index) {
      const size_t offset = at - starts_[index];
      const size_t bytes = std::min(segments_[index].bytes - offset, range.end - at);
      if (bytes > 0) visit(segments_[index].data + offset, bytes, at);
      at += bytes;
    }
  }

 private:
  const std::vector<Segment>& segments_;
  std::vector<size_t> starts_;
};

/// Where a range of a stream lies: in the user's segments, or in a buffer whose first byte has
/// position `origin`.
class Place {
 public:
  explicit Place(const Locator& user) : user_(&user) {}
  Place(std::byte* buffer, size_t origin) : buffer_(buffer), origin_(origin) {}

  template <class Visit>
  void walk(Range range, Visit visit) const {
    if (user_ != nullptr) return user_->walk(range, visit);
    if (range.bytes() > 0) visit(buffer_ + (range.begin - origin_), range.bytes(), range.begin);
  }

 private:
  const Locator* user_ = nullptr;
  std::byte* buffer_ = nullptr;
  size_t origin_ = 0;
};

}  // namespace sirtaki
