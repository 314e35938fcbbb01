#include "base/sealed_frames.h"

#include <cstring>

#include "base/frames.h"

namespace sirtaki {

void Tags::require(std::string_view piece, const void* tag) {
  const SipTag expected = siphash(key_, pieces_, piece);
  // Time tells nothing here: one wrong guess ends the connection and its keys.
  if (std::memcmp(tag, expected.data(), expected.size()) != 0) throw Altered();
  ++pieces_;
}

void FrameSealer::append(std::string& stream, std::string_view message) {
  const uint32_t size = frame_size(message);
  append_piece(stream, {reinterpret_cast<const char*>(&size), sizeof size});
  append_piece(stream, message);
}

void FrameSealer::append_piece(std::string& stream, std::string_view piece) {
  const SipTag tag = tags_.next(piece);
  stream.append(piece);
  stream.append(reinterpret_cast<const char*>(tag.data()), tag.size());
}

std::optional<std::string_view> FrameOpener::next(std::string_view& rest) {
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

std::optional<std::string_view> FrameOpener::take_piece(std::string_view& rest, size_t size) {
  if (rest.size() < size + sizeof(SipTag)) return std::nullopt;
  const std::string_view piece = rest.substr(0, size);
  tags_.require(piece, rest.data() + size);
  rest.remove_prefix(size + sizeof(SipTag));
  return piece;
}

}  // namespace sirtaki
