#pragma once

#include <array>
#include <charconv>
#include <string>

// Formats numbers as text for other programs, independently of the process's locale.
namespace sirtaki {

inline std::string number_text(double number, std::chars_format format, int digits) {
  std::array<char, 400> text;  // the largest double has 309 digits before the point
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number, format, digits).ptr;
  return {text.data(), end};
}

/// Prints `digits` digits after the point, like printf's %.*f in the C locale.
inline std::string fixed_text(double number, int digits) {
  return number_text(number, std::chars_format::fixed, digits);
}

/// Prints the shortest form of at most six digits, like printf's %g in the C locale.
inline std::string short_text(double number) {
  return number_text(number, std::chars_format::general, 6);
}

}  // namespace sirtaki
