#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sirtaki {

/// Far more than the size of the longest control message.
inline constexpr uint32_t kMaxFrameBytes = 256 << 20;

inline void require_frame_size(size_t size) {
  if (size <= kMaxFrameBytes) return;
  throw Error(ErrorCode::kInternal, "a control message of " + std::to_string(size) +
                                        " bytes is longer than the " +
                                        std::to_string(kMaxFrameBytes) + " allowed");
}

/// Engines that use the same connections one after another are generations; this is the first.
inline constexpr uint32_t kFirstGeneration = 1;

/// The head of a message in any byte stream, sealed or not.
struct FrameHead {
  uint32_t size;
  uint32_t generation;
};

/// The size in a message's header.
inline uint32_t frame_size(std::string_view message) {
  require_frame_size(message.size());
  return static_cast<uint32_t>(message.size());
}

/// Appends a message to a byte stream in such a way that the reader finds its end.
inline void append_frame(std::string& stream, std::string_view message,
                         uint32_t generation = kFirstGeneration) {
  const FrameHead head{frame_size(message), generation};
  stream.reserve(stream.size() + sizeof head + message.size());  // all of it or nothing
  stream.append(reinterpret_cast<const char*>(&head), sizeof head);
  stream.append(message);
}

/// Passes the complete messages at the front of `stream` to `receive` and removes them; drops those
/// of another generation.
template <class Receive>
void take_frames(std::string& stream, const Receive& receive,
                 uint32_t generation = kFirstGeneration) {
  std::string_view rest(stream);
  FrameHead head;
  while (rest.size() >= sizeof head) {
    std::memcpy(&head, rest.data(), sizeof head);
    require_frame_size(head.size);
    if (rest.size() - sizeof head < head.size) break;
    if (head.generation == generation) receive(rest.substr(sizeof head, head.size));
    rest.remove_prefix(sizeof head + head.size);
  }
  stream.erase(0, stream.size() - rest.size());
}

}  // namespace sirtaki
