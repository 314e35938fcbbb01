#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sirtaki {

/// Bytes of the character that a text which is not empty begins with; 0: it begins with none.
size_t character_at(std::string_view text);

/// The text with `?` in the place of every byte that is part of no character.
std::string valid_utf8(std::string_view text);

}  // namespace sirtaki
