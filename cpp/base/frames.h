#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace sirtaki {

/// Appends a message to a byte stream so that the reader finds its end.
inline void append_frame(std::string& stream, std::string_view message) {
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
    if (rest.size() - sizeof size < size) break;
    receive(rest.substr(sizeof size, size));
    rest.remove_prefix(sizeof size + size);
  }
  stream.erase(0, stream.size() - rest.size());
}

}  // namespace sirtaki
