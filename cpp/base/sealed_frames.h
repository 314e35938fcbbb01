#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/frames.h"
#include "base/siphash.h"

namespace sirtaki {

/// The keys that the two ends of a connection between hosts share, as seen from one end.
struct SealKeys {
  SipKey sending{};
  SipKey receiving{};
};

/// Somebody between the two ends changed, repeated, reordered or removed bytes.
struct Altered : Error {
  Altered() : Error(ErrorCode::kPeerLost, "a message was altered on its way") {}
};

/// The tags of the pieces in one direction of a connection: each covers the piece's number and its
/// bytes.
class Tags {
 public:
  explicit Tags(const SipKey& key) : key_(key) {}

  /// The tag of the next piece.
  SipTag next(std::string_view piece) { return siphash(key_, pieces_++, piece); }
  /// Throws Altered unless `tag` is the tag of the next piece.
  void require(std::string_view piece, const void* tag) {
    const SipTag expected = siphash(key_, pieces_, piece);
    // Timing reveals nothing useful: one wrong guess ends the connection and its keys.
    if (std::memcmp(tag, expected.data(), expected.size()) != 0) throw Altered();
    ++pieces_;
  }

 private:
  SipKey key_;
  uint64_t pieces_ = 0;
};

/// A word with its tag, as it travels: the receiver checks the tag before it uses the word.
template <class Word>
struct Sealed {
  void seal(const Word& value, Tags& tags) {
    word = value;
    tag = tags.next(text());
  }
  /// Throws Altered unless the tag is the right one.
  void require(Tags& tags) const { tags.require(text(), tag.data()); }

  std::string_view text() const { return {reinterpret_cast<const char*>(&word), sizeof word}; }
  std::span<std::byte> bytes() {
    static_assert(sizeof(Sealed) == sizeof(Word) + sizeof(SipTag));
    return std::as_writable_bytes(std::span(this, 1));
  }

  Word word;
  SipTag tag;
};

/// Frames that only an owner of the key can have written, in this order.
///
/// Each frame consists of two pieces, its head and its message. Each piece has its own tag over its
/// number in the stream and its bytes, so that no size is used before it is authenticated.
class FrameSealer {
 public:
  explicit FrameSealer(const SipKey& key) : tags_(key) {}

  /// Appends a message to a byte stream.
  void append(std::string& stream, std::string_view message,
              uint32_t generation = kFirstGeneration) {
    Sealed<FrameHead> head;
    head.seal({frame_size(message), generation}, tags_);
    const SipTag tag = tags_.next(message);
    stream.append(reinterpret_cast<const char*>(head.bytes().data()), sizeof head);
    stream.append(message);
    stream.append(reinterpret_cast<const char*>(tag.data()), tag.size());
  }

 private:
  Tags tags_;
};

/// Reads what a FrameSealer with the same key has written.
class FrameOpener {
 public:
  explicit FrameOpener(const SipKey& key) : tags_(key) {}

  /// Calls `receive(generation, message)` for the complete messages at the front of `stream` and
  /// removes them; throws Altered before the first altered one.
  template <class Receive>
  void take(std::string& stream, const Receive& receive) {
    // Removes what has been read even if `receive` throws.
    struct Reading {
      std::string& stream;
      std::string_view rest;
      ~Reading() { stream.erase(0, stream.size() - rest.size()); }
    } reading{stream, stream};
    while (const auto message = next(reading.rest)) {
      receive(std::exchange(head_, {})->generation, *message);
    }
  }

 private:
  std::optional<std::string_view> next(std::string_view& rest) {
    Sealed<FrameHead> sealed;
    if (!head_ && rest.size() >= sizeof sealed) {
      std::memcpy(sealed.bytes().data(), rest.data(), sizeof sealed);
      sealed.require(tags_);
      require_frame_size(sealed.word.size);
      head_ = sealed.word;
      rest.remove_prefix(sizeof sealed);
    }
    if (!head_ || rest.size() < head_->size + sizeof(SipTag)) return std::nullopt;
    const std::string_view message = rest.substr(0, head_->size);
    tags_.require(message, rest.data() + head_->size);
    rest.remove_prefix(head_->size + sizeof(SipTag));
    return message;
  }

  Tags tags_;
  std::optional<FrameHead> head_;  ///< of the next message, once known
};

}  // namespace sirtaki
