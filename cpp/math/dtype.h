#pragma once

#include <cstddef>
#include <cstdint>

namespace sirtaki {

enum class Dtype : uint8_t { kBool = 0, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };

inline constexpr int kDtypeCount = 10;

// Bytes of one element.
constexpr size_t size_of(Dtype dtype) {
  constexpr size_t kSizes[kDtypeCount] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<size_t>(dtype)];
}

constexpr bool is_floating(Dtype dtype) { return dtype >= Dtype::kF16; }

// The name users know from numpy and the frameworks: "float32", "bfloat16", "bool" ...
constexpr const char* name(Dtype dtype) {
  constexpr const char* kNames[kDtypeCount] = {"bool",    "uint8",  "int8",    "int16",
                                               "int32",   "int64",  "float16", "bfloat16",
                                               "float32", "float64"};
  return kNames[static_cast<size_t>(dtype)];
}

}  // namespace sirtaki
