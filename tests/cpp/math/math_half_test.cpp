#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "doctest/doctest.h"
#include "half_numbers.h"

namespace sirtaki {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// What the IEEE encoding with these many exponent and mantissa bits means, by its definition.
double decoded(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const double sign = (bits >> (exponent_bits + mantissa_bits)) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * static_cast<double>(kInfinity) : std::nan("");
  }
  const uint32_t hidden = exponent == 0 ? 0 : 1u << mantissa_bits;
  const int power = (exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
  return sign * std::ldexp(static_cast<double>(hidden + mantissa), power);
}

// The rule for a value between two neighbours of the 16-bit format, for every pair of them.
template <typename Widen, typename Narrow>
void check_rounding(uint16_t largest, Widen widen, Narrow narrow) {
  int wrong = 0;
  for (uint16_t low = 0; low < largest; ++low) {
    const uint16_t high = static_cast<uint16_t>(low + 1);
    const float middle = widen(low) + (widen(high) - widen(low)) / 2;
    const uint16_t even = low % 2 == 0 ? low : high;
    for (const int sign : {0, 0x8000}) {
      const float side = sign != 0 ? -1.0f : 1.0f;
      wrong += narrow(side * middle) != (even | sign);
      wrong += narrow(side * std::nextafter(middle, 0.0f)) != (low | sign);
      wrong += narrow(side * std::nextafter(middle, kInfinity)) != (high | sign);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("every float16 widens to the number its bits stand for") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = decoded(bits, 5, 10);
    const double actual = static_cast<double>(f16_to_f32(static_cast<uint16_t>(bits)));
    const bool same = actual == expected && std::signbit(actual) == std::signbit(expected);
    wrong += !(same || (std::isnan(actual) && std::isnan(expected)));
  }
  CHECK(wrong == 0);
}

TEST_CASE("every bfloat16 widens to the number its bits stand for") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = decoded(bits, 8, 7);
    const double actual = static_cast<double>(bf16_to_f32(static_cast<uint16_t>(bits)));
    const bool same = actual == expected && std::signbit(actual) == std::signbit(expected);
    wrong += !(same || (std::isnan(actual) && std::isnan(expected)));
  }
  CHECK(wrong == 0);
}

TEST_CASE("every float16 survives a round trip, signalling NaNs made quiet") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool nan = (bits & 0x7fff) > 0x7c00;
    wrong += f32_to_f16(f16_to_f32(static_cast<uint16_t>(bits))) != (nan ? bits | 0x0200 : bits);
  }
  CHECK(wrong == 0);
}

TEST_CASE("every bfloat16 survives a round trip, signalling NaNs made quiet") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool nan = (bits & 0x7fff) > 0x7f80;
    wrong += f32_to_bf16(bf16_to_f32(static_cast<uint16_t>(bits))) != (nan ? bits | 0x0040 : bits);
  }
  CHECK(wrong == 0);
}

TEST_CASE("float16 rounds to nearest, ties to even, subnormals included") {
  check_rounding(0x7bff, f16_to_f32, f32_to_f16);
}

TEST_CASE("bfloat16 rounds to nearest, ties to even, subnormals included") {
  check_rounding(0x7f7f, bf16_to_f32, f32_to_bf16);
}

TEST_CASE("what is too large for a 16-bit float becomes infinity, what is too small zero") {
  CHECK(f32_to_f16(65519.996f) == 0x7bff);
  CHECK(f32_to_f16(65520.0f) == 0x7c00);
  CHECK(f32_to_f16(-3.0e38f) == 0xfc00);
  CHECK(f32_to_f16(kInfinity) == 0x7c00);
  CHECK(f32_to_f16(from_bits(1)) == 0x0000);
  CHECK(f32_to_f16(-1.0e-30f) == 0x8000);
  CHECK(f32_to_bf16(from_bits(0x7f7f7fff)) == 0x7f7f);
  CHECK(f32_to_bf16(from_bits(0x7f7f8000)) == 0x7f80);
  CHECK(f32_to_bf16(-kInfinity) == 0xff80);
  CHECK(f32_to_bf16(-0.0f) == 0x8000);
}

TEST_CASE("a NaN stays a NaN in 16 bits whatever its payload") {
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    CHECK((f32_to_f16(from_bits(bits)) & 0x7fff) > 0x7c00);
    CHECK((f32_to_bf16(from_bits(bits)) & 0x7fff) > 0x7f80);
  }
}

}  // namespace
}  // namespace sirtaki
