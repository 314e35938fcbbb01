#pragma once

#include <algorithm>
#include <cstring>

#include "collectives/op.h"
#include "collectives/plan.h"

namespace sirtaki {

/// How the numbers of a stream lie in slots and travel: as they are, or encoded, each segment in
/// whole blocks.
class Form {
 public:
  explicit Form(const Op& op)
      : codec_(op.codec == CodecId::kNone ? nullptr : find_codec(op.codec)) {}

  bool encodes() const { return codec_ != nullptr; }
  const Codec* codec() const { return codec_; }

  /// What a segment or a stream becomes.
  size_t bytes(const Segment& segment) const {
    return encodes() ? codec_->bytes(segment.bytes / sizeof(float)) : segment.bytes;
  }
  size_t bytes(const Segments& stream) const {
    if (!encodes()) return stream.bytes();
    size_t bytes = 0;
    for (const Segment& segment : stream.list()) bytes += this->bytes(segment);
    return bytes;
  }
  /// What whole blocks were.
  size_t plain(size_t bytes) const {
    return encodes() ? codec_->numbers(bytes) * sizeof(float) : bytes;
  }
  /// A chunk that was no more than so many bytes; nor is half of its lines more than half of that.
  size_t chunk(size_t plain_bytes) const {
    constexpr size_t kTwoLines = 2 * kCodecLine;
    return encodes() ? plain_bytes / plain(kTwoLines) * kTwoLines : plain_bytes;
  }

 private:
  const Codec* codec_;
};

/// What the longest stream of an operation becomes.
inline size_t bytes_on_way(const Op& op, const Streams& in) {
  return op.codec == CodecId::kNone ? op.longest : Form(op).bytes(in[0]);
}

/// As Cursor, of a stream whose ranges are those of its form. One that begins before the one before
/// ended is looked for from the first segment on.
class CodedCursor {
 public:
  CodedCursor(const Form& form, const Segments& stream) : form_(form), segments_(stream.list()) {}

  /// Calls `visit(pointer, bytes, position)` for each contiguous piece of `range`: numbers as they
  /// are, and the position of their form.
  template <class Visit>
  void walk(Range range, Visit visit) {
    if (range.begin < start_) index_ = start_ = 0;
    for (size_t at = range.begin; at < range.end;) {
      size_t length = form_.bytes(segments_[index_]);
      while (start_ + length <= at) {
        start_ += length;
        length = form_.bytes(segments_[++index_]);
      }
      const Segment& segment = segments_[index_];
      const size_t offset = at - start_;
      const size_t piece = std::min(length - offset, range.end - at);
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
  Form form_;
  const std::vector<Segment>& segments_;
  size_t index_ = 0;
  size_t start_ = 0;  // position of segment index_ in the form of the stream
};

}  // namespace sirtaki
