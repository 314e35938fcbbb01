#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sirtaki {

/// The length in bytes of the character at the start of a non-empty text; 0: there is no valid one.
inline size_t character_at(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  uint32_t code = byte(0) & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  static constexpr uint32_t kLeast[] = {0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kLeast[length - 2] || code > 0x10ffff || surrogate ? 0 : length;
}

/// The text with `?` in place of every byte that is not part of a character and, if `printable`, of
/// every byte that cannot be displayed.
inline std::string valid_utf8(std::string_view text, bool printable = false) {
  std::string valid;
  while (!text.empty()) {
    const size_t bytes = character_at(text);
    const bool shows = bytes > 1 || (text[0] >= ' ' && text[0] != 127);
    valid += bytes > 0 && (shows || !printable) ? text.substr(0, bytes) : "?";
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return valid;
}

}  // namespace sirtaki
