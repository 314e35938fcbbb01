#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace sirtaki {

/// Slices start at multiples of this: a cache line, and a whole number of elements of every dtype.
inline constexpr size_t kSliceAlign = 64;

struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t bytes() const { return end - begin; }
};

/// The part of `bytes` that member `m` of `n` works on; the parts cover all bytes without overlap.
/// No part is longer than bytes / n + 2 * kSliceAlign nor, in a chunk of whole pages, than half of
/// it. `align`, a multiple of kSliceAlign, may replace it.
inline Range slice_of(size_t bytes, int n, int m, size_t align = kSliceAlign) {
  const auto parts = static_cast<size_t>(n);
  const auto index = static_cast<size_t>(m);
  const size_t lines = (bytes + align - 1) / align;
  const auto cut = [&](size_t i) { return std::min(bytes, lines * i / parts * align); };
  return {cut(index), cut(index + 1)};
}

/// The part of a range, cut the same way.
inline Range slice_of(const Range& range, int n, int m) {
  const Range part = slice_of(range.bytes(), n, m);
  return {range.begin + part.begin, range.begin + part.end};
}

/// Cuts a stream into equal chunks (the last may be shorter).
class Chunks {
 public:
  Chunks(size_t bytes, size_t chunk_bytes) : bytes_(bytes), chunk_(chunk_bytes) {}

  uint32_t count() const { return static_cast<uint32_t>((bytes_ + chunk_ - 1) / chunk_); }
  /// Chunk `q` of a stream of `bytes`, which may be shorter than the stream that was cut.
  Range range(uint32_t q, size_t bytes) const {
    const size_t begin = std::min(q * chunk_, bytes);
    return {begin, std::min(begin + chunk_, bytes)};
  }
  Range range(uint32_t q) const { return range(q, bytes_); }

 private:
  size_t bytes_;
  size_t chunk_;
};

}  // namespace sirtaki
