#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/frames.h"
#include "base/siphash.h"

namespace sirtaki {

/// What the two ends of a connection between hosts share, as one of them has it.
struct SealKeys {
  SipKey sending{};
  SipKey receiving{};
};

/// Somebody between the two ends has changed, repeated, moved or left out what was sent.
struct Altered : Error {
  Altered() : Error(ErrorCode::kPeerLost, "a message was altered on its way") {}
};

/// The tags of the pieces that go in one direction of a connection: over the number that each has
/// there and its bytes.
class Tags {
 public:
  explicit Tags(const SipKey& key) : key_(key) {}

  /// Of the next piece.
  SipTag next(std::string_view piece) { return siphash(key_, pieces_++, piece); }
  /// Throws Altered unless `tag` is that of the next piece.
  void require(std::string_view piece, const void* tag) {
    const SipTag expected = siphash(key_, pieces_, piece);
    // Time tells nothing here: one wrong guess ends the connection and its keys.
    if (std::memcmp(tag, expected.data(), expected.size()) != 0) throw Altered();
    ++pieces_;
  }

 private:
  SipKey key_;
  uint64_t pieces_ = 0;
};

/// A word as it travels: whatever comes without its tag is not looked at.
template <class Word>
struct Sealed {
  std::string_view text() const { return {reinterpret_cast<const char*>(&word), sizeof word}; }
  std::span<std::byte> bytes() {
    static_assert(sizeof(Sealed) == sizeof(Word) + sizeof(SipTag));
    return std::as_writable_bytes(std::span(this, 1));
  }

  Word word;
  SipTag tag;
};

/// Frames that only who has the key can have written, in this order.
///
/// Each is two pieces, its size and its message, and each piece has a tag of its own, over its
/// number in the stream and its bytes: a size is not believed before it is known to be true.
class FrameSealer {
 public:
  explicit FrameSealer(const SipKey& key) : tags_(key) {}

  /// Appends a message to a byte stream.
  void append(std::string& stream, std::string_view message) {
    const uint32_t size = frame_size(message);
    append_piece(stream, {reinterpret_cast<const char*>(&size), sizeof size});
    append_piece(stream, message);
  }

 private:
  void append_piece(std::string& stream, std::string_view piece) {
    const SipTag tag = tags_.next(piece);
    stream.append(piece);
    stream.append(reinterpret_cast<const char*>(tag.data()), tag.size());
  }

  Tags tags_;
};

/// Reads what a FrameSealer with the same key has written.
class FrameOpener {
 public:
  explicit FrameOpener(const SipKey& key) : tags_(key) {}

  /// Hands over the whole messages at the front of `stream` and removes them; throws Altered before
  /// the first one that is not what was sent.
  template <class Receive>
  void take(std::string& stream, const Receive& receive) {
    // What has been read is gone, also when `receive` throws.
    struct Reading {
      std::string& stream;
      std::string_view rest;
      ~Reading() { stream.erase(0, stream.size() - rest.size()); }
    } reading{stream, stream};
    while (const auto message = next(reading.rest)) receive(*message);
  }

 private:
  std::optional<std::string_view> next(std::string_view& rest) {
    if (!size_) {
      uint32_t size;
      const auto piece = take_piece(rest, sizeof size);
      if (!piece) return std::nullopt;
      std::memcpy(&size, piece->data(), sizeof size);
      require_frame_size(size);
      size_ = size;
    }
    const auto message = take_piece(rest, *size_);
    if (message) size_.reset();
    return message;
  }
  std::optional<std::string_view> take_piece(std::string_view& rest, size_t size) {
    if (rest.size() < size + sizeof(SipTag)) return std::nullopt;
    const std::string_view piece = rest.substr(0, size);
    tags_.require(piece, rest.data() + size);
    rest.remove_prefix(size + sizeof(SipTag));
    return piece;
  }

  Tags tags_;
  std::optional<uint32_t> size_;  ///< of the message that comes next, once known
};

}  // namespace sirtaki
