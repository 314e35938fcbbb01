#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/sealed_frames.h"
#include "pairs/message.h"
#include "pairs/stream.h"

namespace sirtaki {

/// A frame to be written: a header, and bytes of the caller.
struct Frame {
  Header header{};
  std::span<const std::byte> body{};
  /// Notified when all of it has been sent off; none: nobody waits for that.
  std::shared_ptr<void> owner{};
  size_t written = 0;
};

/// Headers and their bodies, over a stream that may come later. If there are keys, each header has
/// a tag after it, which is checked before the header is used.
class Wire {
 public:
  void use(std::unique_ptr<Stream> stream, const std::optional<SealKeys>& keys = {}) {
    stream_ = std::move(stream);
    if (!keys) return;
    sent_tags_.emplace(keys->sending);
    read_tags_.emplace(keys->receiving);
  }
  Stream* stream() const { return stream_.get(); }
  void close() { stream_.reset(); }

  bool idle() const { return frames_.empty(); }

  /// Writes at once what can be written; calls `sent` with the owners of frames that have been sent
  /// off.
  template <class Sent>
  void send(Frame frame, Sent sent) {
    const bool first = frames_.empty();
    frames_.push_back(std::move(frame));
    if (first) push(sent);
  }
  /// Continues with frames that could not be written.
  template <class Sent>
  void push(Sent sent) {
    while (stream_ != nullptr && !frames_.empty() && write(frames_.front())) {
      const std::shared_ptr<void> owner = std::move(frames_.front().owner);
      frames_.pop_front();
      sent(owner);
    }
  }

  /// Reads what there is, about `most` bytes; false if there may be more. For each header,
  /// `begin(header)` returns the memory for its body, and `end(header)` follows when the body is
  /// complete.
  template <class Begin, class End>
  bool pull(size_t most, Begin begin, End end) {
    size_t done = 0;
    size_t got = 1;
    while (got > 0 && done < most && stream_ != nullptr) {
      got = body_left_ > 0 ? pull_body(end) : pull_header(begin, end);
      done += got;
    }
    if (stream_ == nullptr) return true;  // the bytes led to an answer that the stream did not take
    stream_->release();
    return got == 0;
  }

  /// The number of bytes sent and received.
  uint64_t moved() const { return moved_; }
  /// The first frame that has not been sent off completely; null: there is none.
  const Frame* first() const { return frames_.empty() ? nullptr : &frames_.front(); }

  /// Discards the rest of a body, if `skip`.
  void skip_body(bool skip) {
    if (skip) body_ = nullptr;
  }

  /// Returns the frames that will not be written, perhaps in the middle of one.
  std::deque<Frame> drop() {
    if (stream_ != nullptr) stream_->abandon();
    return std::exchange(frames_, {});
  }

 private:
  static constexpr size_t kHandOver = 2 << 10;

  /// The header of the first frame, with its tag if there are keys.
  std::span<const std::byte> head_of(const Frame& frame) {
    if (!sent_tags_) return std::as_bytes(std::span(&frame.header, 1));
    if (frame.written == 0 && !sealed_) {
      sending_.seal(frame.header, *sent_tags_);
      sealed_ = true;
    }
    return sending_.bytes();
  }

  bool write(Frame& frame) {
    const std::span header = head_of(frame);
    const size_t of_header = std::min(frame.written, header.size());
    const size_t of_body = frame.written - of_header;
    const size_t count = stream_->write(header.subspan(of_header), frame.body.subspan(of_body));
    frame.written += count;
    moved_ += count;
    if (frame.written < header.size() + frame.body.size()) return false;
    sealed_ = false;
    return true;
  }

  template <class Begin, class End>
  size_t pull_header(Begin& begin, End& end) {
    const size_t sealed = read_tags_ ? sizeof reading_ : sizeof reading_.word;
    const std::span head = reading_.bytes().first(sealed);
    const size_t got = stream_->read(head.data() + have_, head.size() - have_);
    have_ += got;
    moved_ += got;
    if (have_ < head.size()) return got;
    have_ = 0;
    if (read_tags_) reading_.require(*read_tags_);
    const std::span<std::byte> body = begin(reading_.word);
    body_ = body.data();
    body_left_ = body.size();
    if (body_left_ == 0) end(reading_.word);
    return got;
  }

  template <class End>
  size_t pull_body(End& end) {
    const size_t got = stream_->read(body_, body_left_);
    moved_ += got;
    if (body_ != nullptr) body_ += got;
    body_left_ -= got;
    if (got > kHandOver) stream_->release();  // the writer may continue
    if (body_left_ == 0) end(reading_.word);
    return got;
  }

  std::unique_ptr<Stream> stream_;
  std::deque<Frame> frames_;
  std::optional<Tags> sent_tags_;
  std::optional<Tags> read_tags_;
  Sealed<Header> sending_{};  ///< of the first frame
  bool sealed_ = false;       ///< its tag has been made
  Sealed<Header> reading_{};  ///< of the arriving frame
  size_t have_ = 0;           ///< of the header
  uint64_t moved_ = 0;
  std::byte* body_ = nullptr;
  size_t body_left_ = 0;
};

}  // namespace sirtaki
