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

struct DtypeTraits {
  const char* name;  // as users know it from numpy and the frameworks
  size_t bytes;      // of one element
};
inline constexpr DtypeTraits kDtypeTraits[] = {
    {"bool", 1},
    {"uint8", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"complex32", 4},
    {"complex64", 8},
    {"complex128", 16},
    {"float8_e4m3fn", 1},
    {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},
    {"float4_e2m1fn_x2", 1},
    {"float8_e3m4", 1},
    {"float8_e4m3", 1},
    {"float8_e4m3b11fnuz", 1},
    {"float6_e2m3fn", 1},
    {"float6_e3m2fn", 1},
    {"float4_e2m1fn", 1},
    {"int1", 1},
    {"int2", 1},
    {"int4", 1},
    {"uint1", 1},
    {"uint2", 1},
    {"uint4", 1},
    {"bcomplex32", 4},
};
static_assert(sizeof(kDtypeTraits) == kDtypeCount * sizeof(DtypeTraits));

// The size in bytes of one element.
constexpr size_t size_of(Dtype dtype) { return kDtypeTraits[static_cast<size_t>(dtype)].bytes; }

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

// "float32", "bfloat16", "bool" ...
constexpr const char* name(Dtype dtype) { return kDtypeTraits[static_cast<size_t>(dtype)].name; }

}  // namespace sirtaki
