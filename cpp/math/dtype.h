#pragma once

#include <cstddef>
#include <cstdint>

namespace sirtaki {

// The first kReducibleCount can be reduced; the others only travel unchanged. Elements smaller than
// a byte take a byte each, as in ml_dtypes.
enum class Dtype : uint8_t {
  kBool = 0,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kU16,
  kU32,
  kU64,
  kC32,
  kC64,
  kC128,
  kF8E4M3FN,
  kF8E4M3FNUZ,
  kF8E5M2,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
  kF4E2M1FNX2,
  kF8E3M4,
  kF8E4M3,
  kF8E4M3B11FNUZ,
  kF6E2M3FN,
  kF6E3M2FN,
  kF4E2M1FN,
  kI1,
  kI2,
  kI4,
  kU1,
  kU2,
  kU4,
  kBC32
};

inline constexpr int kReducibleCount = 16;
inline constexpr int kDtypeCount = 35;

// The size in bytes of one element.
constexpr size_t size_of(Dtype dtype) {
  constexpr size_t kSizes[kDtypeCount] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  4};
  return kSizes[static_cast<size_t>(dtype)];
}

constexpr bool is_reducible(Dtype dtype) { return static_cast<int>(dtype) < kReducibleCount; }

// Whether Adasum can combine it: real numbers with a fraction, in a format that can be reduced.
constexpr bool is_floating(Dtype dtype) { return dtype >= Dtype::kF16 && dtype <= Dtype::kF64; }

constexpr bool is_complex(Dtype dtype) { return dtype >= Dtype::kC32 && dtype <= Dtype::kC128; }

// Bools are not integers here.
constexpr bool is_integer(Dtype dtype) {
  return (dtype >= Dtype::kU8 && dtype <= Dtype::kI64) ||
         (dtype >= Dtype::kU16 && dtype <= Dtype::kU64);
}

// Whether its numbers, or their parts, are 16-bit floats.
constexpr bool is_half(Dtype dtype) {
  return dtype == Dtype::kF16 || dtype == Dtype::kBF16 || dtype == Dtype::kC32;
}

// The name users know from numpy and the frameworks: "float32", "bfloat16", "bool" ...
constexpr const char* name(Dtype dtype) {
  constexpr const char* kNames[kDtypeCount] = {"bool",
                                               "uint8",
                                               "int8",
                                               "int16",
                                               "int32",
                                               "int64",
                                               "float16",
                                               "bfloat16",
                                               "float32",
                                               "float64",
                                               "uint16",
                                               "uint32",
                                               "uint64",
                                               "complex32",
                                               "complex64",
                                               "complex128",
                                               "float8_e4m3fn",
                                               "float8_e4m3fnuz",
                                               "float8_e5m2",
                                               "float8_e5m2fnuz",
                                               "float8_e8m0fnu",
                                               "float4_e2m1fn_x2",
                                               "float8_e3m4",
                                               "float8_e4m3",
                                               "float8_e4m3b11fnuz",
                                               "float6_e2m3fn",
                                               "float6_e3m2fn",
                                               "float4_e2m1fn",
                                               "int1",
                                               "int2",
                                               "int4",
                                               "uint1",
                                               "uint2",
                                               "uint4",
                                               "bcomplex32"};
  return kNames[static_cast<size_t>(dtype)];
}

}  // namespace sirtaki
