#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sirtaki {

/// Far more than the longest control message has.
inline constexpr uint32_t kMaxFrameBytes = 256 << 20;

inline void require_frame_size(size_t size) {
  if (size <= kMaxFrameBytes) return;
  throw Error(ErrorCode::kInternal, "a control message of " + std::to_string(size) +
                                        " bytes is longer than the " +
                                        std::to_string(kMaxFrameBytes) + " allowed");
}

/// The size that precedes a message.
inline uint32_t frame_size(std::string_view message) {
  require_frame_size(message.size());
  return static_cast<uint32_t>(message.size());
}

/// Appends a message to a byte stream so that the reader finds its end.
inline void append_frame(std::string& stream, std::string_view message) {
  const uint32_t size = frame_size(message);
  stream.append(reinterpret_cast<const char*>(&size), sizeof size);
  stream.append(message);
}

/// Hands over the whole messages at the front of `stream` and removes them.
template <class Receive>
void take_frames(std::string& stream, const Receive& receive) {
  std::string_view rest(stream);
  uint32_t size;
  while (rest.size() >= sizeof size) {
    std::memcpy(&size, rest.data(), sizeof size);
    require_frame_size(size);
    if (rest.size() - sizeof size < size) break;
    receive(rest.substr(sizeof size, size));
    rest.remove_prefix(sizeof size + size);
  }
  stream.erase(0, stream.size() - rest.size());
}

}  // namespace sirtaki
