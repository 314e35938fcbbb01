#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sirtaki {

/// No control message is longer; who announces one that is would have its reader fill its memory.
inline constexpr size_t kMostFrameBytes = size_t{1} << 30;

inline void check_frame_size(size_t bytes) {
  if (bytes <= kMostFrameBytes) return;
  throw Error(ErrorCode::kInternal, "a control message of " + std::to_string(bytes) +
                                        " bytes is longer than any is allowed to be");
}

/// Appends a message to a byte stream so that the reader finds its end.
inline void append_frame(std::string& stream, std::string_view message) {
  check_frame_size(message.size());
  const auto size = static_cast<uint32_t>(message.size());
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
    check_frame_size(size);
    if (rest.size() - sizeof size < size) break;
    receive(rest.substr(sizeof size, size));
    rest.remove_prefix(sizeof size + size);
  }
  stream.erase(0, stream.size() - rest.size());
}

}  // namespace sirtaki
