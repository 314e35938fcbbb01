#pragma once

#include <algorithm>
#include <cstring>

#include "collectives/op.h"
#include "collectives/plan.h"

namespace sirtaki {

/// The form of a stream's numbers in slots and in transfer: unchanged, or encoded, each segment in
/// whole blocks.
class Form {
 public:
  /// Unchanged.
  Form() = default;
  explicit Form(const Op& op)
      : codec_(op.codec == CodecId::kNone ? nullptr : find_codec(op.codec)) {}

  bool encodes() const { return codec_ != nullptr; }
  const Codec* codec() const { return codec_; }

  /// The size that a segment or a stream has in this form.
  size_t bytes(const Segment& segment) const {
    return encodes() ? codec_->bytes(segment.bytes / sizeof(float)) : segment.bytes;
  }
  size_t bytes(const Segments& stream) const {
    if (!encodes()) return stream.bytes();
    size_t bytes = 0;
    for (const Segment& segment : stream.list()) bytes += this->bytes(segment);
    return bytes;
  }
  /// The original size of whole blocks.
  size_t plain(size_t bytes) const {
    return encodes() ? codec_->numbers(bytes) * sizeof(float) : bytes;
  }
  /// A chunk of at most `plain_bytes` original bytes; half of its lines have at most half of these.
  size_t chunk(size_t plain_bytes) const {
    constexpr size_t kTwoLines = 2 * kCodecLine;
    return encodes() ? plain_bytes / plain(kTwoLines) * kTwoLines : plain_bytes;
  }

 private:
  const Codec* codec_ = nullptr;
};

/// The size that the longest stream of an operation has in transfer.
inline size_t bytes_on_way(const Op& op, const Streams& in) {
  return op.codec == CodecId::kNone ? op.longest : Form(op).bytes(in[0]);
}

/// Finds positions of a stream, in its form, in the stream's segments; fast near the last position.
class Cursor {
 public:
  explicit Cursor(const Segments& stream, const Form& form = {})
      : form_(form), segments_(stream.list()) {}

  /// The rest of the segment that has this position, in a stream that is not encoded; it may not be
  /// mapped in this process.
  Segment seek(size_t at) {
    const Segment& segment = find(at);
    const size_t offset = at - start_;
    return {segment.data == nullptr ? nullptr : segment.data + offset, segment.bytes - offset};
  }

  /// Calls `visit(pointer, bytes, position)` for each contiguous piece of `range`: the original
  /// numbers, and the position of their form.
  template <class Visit>
  void walk(Range range, Visit visit) {
    for (size_t at = range.begin; at < range.end;) {
      const Segment& segment = find(at);
      const size_t offset = at - start_;
      const size_t piece = std::min(form_.bytes(segment) - offset, range.end - at);
      const size_t from = form_.plain(offset);
      const size_t to = std::min(form_.plain(offset + piece), segment.bytes);
      visit(segment.data + from, to - from, at);
      at += piece;
    }
  }

  void copy_to(std::byte* to, Range range) {
    walk(range, [&](const std::byte* from, size_t bytes, size_t at) {
      std::byte* const place = to + (at - range.begin);
      if (form_.encodes()) {
        form_.codec()->encode(place, from, bytes / sizeof(float));
      } else {
        std::memcpy(place, from, bytes);
      }
    });
  }

  void copy_from(const std::byte* from, Range range) {
    const ReduceFn decode = form_.encodes() ? decode_fn(*form_.codec(), ReduceOp::kSum) : nullptr;
    walk(range, [&](std::byte* to, size_t bytes, size_t at) {
      const void* const place[] = {from + (at - range.begin)};
      if (decode != nullptr) {
        decode(to, nullptr, place, 1, bytes / sizeof(float), {});
      } else {
        std::memcpy(to, place[0], bytes);
      }
    });
  }

 private:
  const Segment& find(size_t at) {
    while (at < start_) start_ -= form_.bytes(segments_[--index_]);
    while (start_ + form_.bytes(segments_[index_]) <= at) {
      start_ += form_.bytes(segments_[index_++]);
    }
    return segments_[index_];
  }

  Form form_;
  const std::vector<Segment>& segments_;
  size_t index_ = 0;
  size_t start_ = 0;  // position of segment index_
};

/// The location of a range of a stream: in the user's segments, or in a buffer whose first byte has
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

/// Copies a whole stream to another of the same length; their segment borders may differ.
inline void copy_stream(const Segments& from, const Segments& to) {
  Cursor source(from);
  Cursor(to).walk({0, to.bytes()}, [&](std::byte* out, size_t bytes, size_t at) {
    source.walk({at, at + bytes}, [&](const std::byte* in, size_t piece, size_t position) {
      std::byte* const to_piece = out + (position - at);
      if (to_piece != in) std::memcpy(to_piece, in, piece);
    });
  });
}

}  // namespace sirtaki
