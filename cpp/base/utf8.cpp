#include "base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace sirtaki {
namespace {

/// How many bytes the character at the front has; 0: there is none.
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if (byte(i) >> 6 != 2) return 0;
  }
  // Longer than need be, half of a pair, or beyond the last.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return bytes;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const size_t bytes = character(text);
    valid.append(bytes > 0 ? text.substr(0, bytes) : "?");
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return valid;
}

}  // namespace sirtaki
