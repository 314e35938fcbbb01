#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "half_numbers.h"
#include "math/codec.h"
#include "math/integers.h"
#include "math/reduce.h"
#include "math/reduce_levels.h"

// The rules of math/reduce.h, one element after another, in the plainest way.
namespace sirtaki::reference {

using Bytes = std::vector<unsigned char>;

struct F16 {
  using Memory = uint16_t;
  using Value = float;
  static float decode(uint16_t half) { return f16_to_f32(half); }
  static uint16_t encode(float value) { return f32_to_f16(value); }
};

struct BF16 {
  using Memory = uint16_t;
  using Value = float;
  static float decode(uint16_t half) { return bf16_to_f32(half); }
  static uint16_t encode(float value) { return f32_to_bf16(value); }
};

struct Bool {
  using Memory = uint8_t;
  using Value = bool;
  static bool decode(uint8_t byte) { return byte != 0; }
  static uint8_t encode(bool value) { return value ? 1 : 0; }
};

template <typename T>
struct Same {
  using Memory = T;
  using Value = T;
  static T decode(T value) { return value; }
  static T encode(T value) { return value; }
};

/// Complex numbers: their parts one after the other in memory.
template <typename Part>
struct Pair {
  using Memory = std::array<typename Part::Memory, 2>;
  using Value = std::complex<typename Part::Value>;
  static Value decode(Memory parts) { return {Part::decode(parts[0]), Part::decode(parts[1])}; }
  static Memory encode(Value value) {
    return {Part::encode(value.real()), Part::encode(value.imag())};
  }
};

template <typename T>
T multiplied(T value, double factor) {
  if (factor == 1.0 || std::is_same_v<T, bool>) return value;
  if constexpr (std::is_floating_point_v<T>) {
    return value * static_cast<T>(factor);
  } else if constexpr (sizeof(T) == sizeof(int64_t)) {
    return scaled(value, factor);  // which integers of Python are compared with
  } else {
    const double product = std::trunc(static_cast<double>(value) * factor);
    if (std::isnan(product)) return 0;
    if (product <= static_cast<double>(std::numeric_limits<T>::min())) {
      return std::numeric_limits<T>::min();
    }
    if (product >= static_cast<double>(std::numeric_limits<T>::max())) {
      return std::numeric_limits<T>::max();
    }
    return static_cast<T>(product);
  }
}

template <typename T>
std::complex<T> multiplied(std::complex<T> value, double factor) {
  if (factor == 1.0) return value;
  return {value.real() * static_cast<T>(factor), value.imag() * static_cast<T>(factor)};
}

template <typename T>
std::complex<T> folded(std::complex<T> a, std::complex<T> b, ReduceOp op) {
  if (op != ReduceOp::kProduct) return a + b;
  // volatile: nothing is fused with what comes next.
  const volatile T products[] = {a.real() * b.real(), a.imag() * b.imag(), a.real() * b.imag(),
                                 a.imag() * b.real()};
  return {products[0] - products[1], products[2] + products[3]};
}

template <typename T>
T folded(T a, T b, ReduceOp op) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  }
  if (op == ReduceOp::kMin) return b < a ? b : a;
  if (op == ReduceOp::kMax) return b > a ? b : a;
  if constexpr (!std::is_floating_point_v<T>) {
    if (op == ReduceOp::kBitAnd) return static_cast<T>(a & b);
    if (op == ReduceOp::kBitOr) return static_cast<T>(a | b);
    if (op == ReduceOp::kBitXor) return static_cast<T>(a ^ b);
  }
  const bool product = op == ReduceOp::kProduct;
  if constexpr (std::is_same_v<T, bool>) {
    return product ? a && b : a || b;
  } else if constexpr (std::is_floating_point_v<T>) {
    return product ? a * b : a + b;
  } else {
    const auto x = static_cast<uint64_t>(a);
    const auto y = static_cast<uint64_t>(b);
    return static_cast<T>(product ? x * y : x + y);
  }
}

/// The value, which is not fused with what comes next.
template <typename T>
T kept(T value) {
  asm volatile("" : : "r"(&value) : "memory");
  return value;
}

template <typename Format>
void reduce_as(ReduceOp op, const std::vector<Bytes>& srcs, size_t count, Scale scale, Bytes& out) {
  using Memory = typename Format::Memory;
  for (size_t i = 0; i < count; ++i) {
    typename Format::Value acc{};
    for (size_t k = 0; k < srcs.size(); ++k) {
      Memory raw;
      std::memcpy(&raw, srcs[k].data() + i * sizeof raw, sizeof raw);
      const auto value = kept(multiplied(Format::decode(raw), scale.pre));
      acc = k == 0 ? value : kept(folded(acc, value, op));
    }
    acc = multiplied(acc, scale.post);
    const Memory raw = Format::encode(acc);
    std::memcpy(out.data() + i * sizeof raw, &raw, sizeof raw);
  }
}

inline void reduce(Dtype dtype, ReduceOp op, const std::vector<Bytes>& srcs, size_t count,
                   Scale scale, Bytes& out) {
  if (op == ReduceOp::kAverage && is_integer(dtype)) {
    std::vector<const void*> sources;
    for (const Bytes& source : srcs) sources.push_back(source.data());
    // Which integers of Python are compared with.
    return average_fn(dtype)(out.data(), nullptr, sources.data(), static_cast<int>(srcs.size()),
                             count, scale);
  }
  switch (dtype) {
    case Dtype::kBool:
      return reduce_as<Bool>(op, srcs, count, scale, out);
    case Dtype::kU8:
      return reduce_as<Same<uint8_t>>(op, srcs, count, scale, out);
    case Dtype::kI8:
      return reduce_as<Same<int8_t>>(op, srcs, count, scale, out);
    case Dtype::kI16:
      return reduce_as<Same<int16_t>>(op, srcs, count, scale, out);
    case Dtype::kI32:
      return reduce_as<Same<int32_t>>(op, srcs, count, scale, out);
    case Dtype::kI64:
      return reduce_as<Same<int64_t>>(op, srcs, count, scale, out);
    case Dtype::kF16:
      return reduce_as<F16>(op, srcs, count, scale, out);
    case Dtype::kBF16:
      return reduce_as<BF16>(op, srcs, count, scale, out);
    case Dtype::kF32:
      return reduce_as<Same<float>>(op, srcs, count, scale, out);
    case Dtype::kF64:
      return reduce_as<Same<double>>(op, srcs, count, scale, out);
    case Dtype::kU16:
      return reduce_as<Same<uint16_t>>(op, srcs, count, scale, out);
    case Dtype::kU32:
      return reduce_as<Same<uint32_t>>(op, srcs, count, scale, out);
    case Dtype::kU64:
      return reduce_as<Same<uint64_t>>(op, srcs, count, scale, out);
    case Dtype::kC32:
      return reduce_as<Pair<F16>>(op, srcs, count, scale, out);
    case Dtype::kC64:
      return reduce_as<Pair<Same<float>>>(op, srcs, count, scale, out);
    case Dtype::kC128:
      return reduce_as<Pair<Same<double>>>(op, srcs, count, scale, out);
    default:
      FAIL("this type is only moved");
  }
}

inline float float_at(const Bytes& bytes, size_t i) {
  float value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

inline constexpr size_t kInt8Block = 60;
inline constexpr size_t kInt8Bytes = 64;

/// Blocks of a scale and 60 whole numbers.
inline Bytes encoded_int8(const Bytes& floats) {
  const size_t count = floats.size() / sizeof(float);
  Bytes result;
  for (size_t begin = 0; begin < count; begin += kInt8Block) {
    const size_t end = std::min(begin + kInt8Block, count);
    float most = 0;
    bool finite = true;
    for (size_t i = begin; i < end; ++i) {
      most = std::max(most, std::abs(float_at(floats, i)));
      finite = finite && std::isfinite(float_at(floats, i));
    }
    const bool all_zero = most < 0x1p-119f;
    const float nothing = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    const float scale = finite && !all_zero ? most / 127 : nothing;
    Bytes block(kInt8Bytes);
    std::memcpy(block.data(), &scale, sizeof scale);
    for (size_t i = begin; i < end && finite && !all_zero; ++i) {
      const auto whole = static_cast<int8_t>(std::nearbyint(float_at(floats, i) * (127 / most)));
      std::memcpy(&block[sizeof scale + (i - begin)], &whole, 1);
    }
    result.insert(result.end(), block.begin(), block.end());
  }
  return result;
}

inline Bytes decoded_int8(const Bytes& blocks, size_t count) {
  Bytes result(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    const size_t block = i / kInt8Block * kInt8Bytes;
    const auto whole = static_cast<int8_t>(blocks[block + sizeof(float) + i % kInt8Block]);
    float scale;
    std::memcpy(&scale, &blocks[block], sizeof scale);
    const float value = static_cast<float>(whole) * scale;
    std::memcpy(&result[i * sizeof value], &value, sizeof value);
  }
  return result;
}

/// All but kNone.
inline std::vector<CodecId> codecs() {
  std::vector<CodecId> all;
  for (int id = 1; id < codec_count(); ++id) all.push_back(static_cast<CodecId>(id));
  return all;
}

/// The kernels that stand for a codec which has no definition here: its own test has one.
inline const Codec* undefined(CodecId codec) {
  return codec > CodecId::kInt8 ? sirtaki::find_codec(kKernelsBaseline, codec) : nullptr;
}

/// What numbers of float32 are encoded in.
inline Bytes encoded(CodecId codec, const Bytes& floats) {
  if (const Codec* const own = undefined(codec)) {
    const size_t count = floats.size() / sizeof(float);
    Bytes result(own->bytes(count));
    own->encode(result.data(), floats.data(), count);
    return result;
  }
  if (codec == CodecId::kInt8) return encoded_int8(floats);
  Bytes result(floats.size() / 2);
  for (size_t i = 0; i < floats.size() / sizeof(float); ++i) {
    const float value = float_at(floats, i);
    const uint16_t half = codec == CodecId::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(result.data() + i * sizeof half, &half, sizeof half);
  }
  return result;
}

/// `count` float32 that were encoded.
inline Bytes decoded(CodecId codec, const Bytes& bytes, size_t count) {
  if (const Codec* const own = undefined(codec)) {
    Bytes result(count * sizeof(float));
    const void* const sources[] = {bytes.data()};
    decode_fn(*own, ReduceOp::kSum)(result.data(), nullptr, sources, 1, count, {});
    return result;
  }
  if (codec == CodecId::kInt8) return decoded_int8(bytes, count);
  Bytes result(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, bytes.data() + i * sizeof half, sizeof half);
    const float value = codec == CodecId::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
    std::memcpy(result.data() + i * sizeof value, &value, sizeof value);
  }
  return result;
}

/// The floats that a number of this type consists of, if it does.
inline Dtype part_of(Dtype dtype) {
  if (dtype == Dtype::kC32) return Dtype::kF16;
  if (dtype == Dtype::kC64) return Dtype::kF32;
  return dtype == Dtype::kC128 ? Dtype::kF64 : dtype;
}

// Replaces every NaN by one and the same: which one a reduction gives is left open.
inline void unify_nans(Dtype whole, Bytes& bytes) {
  const Dtype dtype = part_of(whole);
  if (!is_floating(dtype)) return;
  for (size_t i = 0; i < bytes.size() / size_of(dtype); ++i) {
    double value = 0.0;
    uint16_t half = 0;
    const unsigned char* const at = bytes.data() + i * size_of(dtype);
    std::memcpy(&half, at, sizeof half);
    if (dtype == Dtype::kF16) value = static_cast<double>(f16_to_f32(half));
    if (dtype == Dtype::kBF16) value = static_cast<double>(bf16_to_f32(half));
    if (dtype == Dtype::kF32) {
      float single;
      std::memcpy(&single, at, sizeof single);
      value = static_cast<double>(single);
    }
    if (dtype == Dtype::kF64) std::memcpy(&value, at, sizeof value);
    if (std::isnan(value)) std::memset(bytes.data() + i * size_of(dtype), 0xff, size_of(dtype));
  }
}

}  // namespace sirtaki::reference
