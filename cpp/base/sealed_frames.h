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
/// Each frame consists of two pieces, its size and its message. Each piece has its own tag over its
/// number in the stream and its bytes, so that no size is used before it is authenticated.
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

  /// Passes the complete messages at the front of `stream` to `receive` and removes them; throws
  /// Altered before the first altered one.
  template <class Receive>
  void take(std::string& stream, const Receive& receive) {
    // Removes what has been read even if `receive` throws.
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
  std::optional<uint32_t> size_;  ///< of the next message, once known
};

}  // namespace sirtaki
