#pragma once

#include <cstdint>

#include "math/half.h"

// The conversions of math/half.h, of one number.
namespace sirtaki {

using HalfBitsScalar = HalfBits<uint32_t, int32_t, float>;

constexpr float f16_to_f32(uint16_t half) {
  return __builtin_bit_cast(float, HalfBitsScalar::f16_to_f32(half));
}

constexpr uint16_t f32_to_f16(float value) {
  return static_cast<uint16_t>(HalfBitsScalar::f32_to_f16(__builtin_bit_cast(uint32_t, value)));
}

constexpr float bf16_to_f32(uint16_t half) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(half) << 16);
}

constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = HalfBitsScalar::f32_to_bf16(__builtin_bit_cast(uint32_t, value));
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace sirtaki
