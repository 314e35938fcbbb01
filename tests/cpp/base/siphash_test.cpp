#include "base/siphash.h"

#include <string>

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

std::string hex(const SipTag& tag) {
  const char* digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : tag) {
    text += digits[std::to_integer<int>(byte >> 4)];
    text += digits[std::to_integer<int>(byte & std::byte{15})];
  }
  return text;
}

std::string counted(size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(i);
  return bytes;
}

SipKey reference_key() {
  SipKey key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  return key;
}

TEST_CASE("tags are those of the reference implementation of SipHash-2-4-128") {
  const SipKey key = reference_key();
  const uint64_t first = 0x0706050403020100;  // of the bytes that are counted
  CHECK(hex(siphash(key, first, "")) == "3b62a9ba6258f5610f83e264f31497b4");
  CHECK(hex(siphash(key, first, counted(63).substr(8))) == "5150d1772f50834a503e069a973fbd7c");
}

}  // namespace
}  // namespace sirtaki
