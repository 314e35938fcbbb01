#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "pairs/message.h"
#include "pairs/stream.h"

namespace sirtaki {

/// Something to be written: a header, and bytes of the caller's.
struct Frame {
  Header header{};
  std::span<const std::byte> body{};
  /// Told when all of it is on its way; none: nobody waits for that.
  std::shared_ptr<void> owner{};
  size_t written = 0;
};

/// Headers and what belongs to them, over a stream that may come later.
class Wire {
 public:
  void use(std::unique_ptr<Stream> stream) { stream_ = std::move(stream); }
  Stream* stream() const { return stream_.get(); }
  void close() { stream_.reset(); }

  bool idle() const { return frames_.empty(); }

  /// Writes at once what can be written; `sent` is called with frames that are on their way.
  template <class Sent>
  void send(Frame frame, Sent sent) {
    const bool first = frames_.empty();
    frames_.push_back(std::move(frame));
    if (first) push(sent);
  }
  /// Goes on with what could not be written.
  template <class Sent>
  void push(Sent sent) {
    while (stream_ != nullptr && !frames_.empty() && write(frames_.front())) {
      const Frame frame = std::move(frames_.front());
      frames_.pop_front();
      sent(frame);
    }
  }

  /// Reads what there is, about `most` bytes; false if there may be more. For each header
  /// `begin(header)` says where its body goes and how long it is, and `end(header)` follows when
  /// that is there.
  template <class Begin, class End>
  bool pull(size_t most, Begin begin, End end) {
    size_t done = 0;
    size_t got = 1;
    while (got > 0 && done < most && stream_ != nullptr) {
      got = body_left_ > 0 ? pull_body(end) : pull_header(begin, end);
      done += got;
    }
    if (stream_ == nullptr) return true;  // what came led to an answer that it did not take
    stream_->release();
    return got == 0;
  }

  /// What is still to come of a body goes nowhere, if `skip`.
  void skip_body(bool skip) {
    if (skip) body_ = nullptr;
  }

  /// Gives what will not be written.
  std::deque<Frame> drop() { return std::exchange(frames_, {}); }

 private:
  static constexpr size_t kHandOver = 2 << 10;

  bool write(Frame& frame) {
    const std::span header(reinterpret_cast<const std::byte*>(&frame.header), sizeof(Header));
    const size_t of_header = std::min(frame.written, header.size());
    const size_t of_body = frame.written - of_header;
    frame.written += stream_->write(header.subspan(of_header), frame.body.subspan(of_body));
    return frame.written == header.size() + frame.body.size();
  }

  template <class Begin, class End>
  size_t pull_header(Begin& begin, End& end) {
    const size_t got =
        stream_->read(reinterpret_cast<std::byte*>(&header_) + have_, sizeof header_ - have_);
    have_ += got;
    if (have_ < sizeof header_) return got;
    have_ = 0;
    const std::span<std::byte> body = begin(header_);
    body_ = body.data();
    body_left_ = body.size();
    if (body_left_ == 0) end(header_);
    return got;
  }

  template <class End>
  size_t pull_body(End& end) {
    const size_t got = stream_->read(body_, body_left_);
    if (body_ != nullptr) body_ += got;
    body_left_ -= got;
    if (got > kHandOver) stream_->release();  // the writer may go on
    if (body_left_ == 0) end(header_);
    return got;
  }

  std::unique_ptr<Stream> stream_;
  std::deque<Frame> frames_;
  Header header_{};
  size_t have_ = 0;  ///< of the header
  std::byte* body_ = nullptr;
  size_t body_left_ = 0;
};

}  // namespace sirtaki
