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
  CHECK(hex(siphash(key, counted(0))) == "a3817f04ba25a8e66df67214c7550293");
  CHECK(hex(siphash(key, counted(1))) == "da87c1d86b99af44347659119b22fc45");
  CHECK(hex(siphash(key, counted(7))) == "a1f1ebbed8dbc153c0b84aa61ff08239");
  CHECK(hex(siphash(key, counted(8))) == "3b62a9ba6258f5610f83e264f31497b4");
  CHECK(hex(siphash(key, counted(63))) == "5150d1772f50834a503e069a973fbd7c");
}

TEST_CASE("a counter is hashed as its eight bytes before the message") {
  const std::string counter("\x05\0\0\0\0\0\0\0", 8);
  CHECK(hex(siphash(reference_key(), 5, "message")) ==
        hex(siphash(reference_key(), counter + "message")));
}

}  // namespace
}  // namespace sirtaki
