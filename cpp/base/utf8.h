#pragma once

#include <string>
#include <string_view>

namespace sirtaki {

/// The text with `?` in the place of every byte that is part of no character.
std::string valid_utf8(std::string_view text);

}  // namespace sirtaki
