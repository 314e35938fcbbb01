// Kernels for float32 numbers that are rounded to 16 bits on their way; as reduce_kernels.h, of
// which this is the other half.
#pragma once

#include "math/reduce_kernels.h"

namespace sirtaki {
namespace {

// As many 16-bit numbers as there are float32 in a vector, in the same order.
typedef uint16_t Shorts __attribute__((vector_size(SIRTAKI_VECTOR_BYTES / 2)));

SIRTAKI_INLINE Half::Bits lengthened(Shorts shorts) {
  return __builtin_convertvector(shorts, Half::Bits);
}

SIRTAKI_INLINE Shorts shortened(Half::Bits bits) { return __builtin_convertvector(bits, Shorts); }

struct BrainWire {
  SIRTAKI_INLINE static Vec<float> read(const Byte* from) {
    return __builtin_bit_cast(Vec<float>, lengthened(load<Shorts>(from)) << 16);
  }

  SIRTAKI_INLINE static void write(Byte* to, Vec<float> numbers) {
    const auto bits = __builtin_bit_cast(Half::Bits, numbers);
    store(to, shortened(Half::Convert::f32_to_bf16(bits)));
  }

  SIRTAKI_INLINE static Vec<float> rounded(Vec<float> numbers) {
    const auto bits = Half::Convert::f32_to_bf16(__builtin_bit_cast(Half::Bits, numbers));
    return __builtin_bit_cast(Vec<float>, bits << 16);
  }
};

struct HalfWire {
#if SIRTAKI_VECTOR_BYTES == 16 && !defined(__aarch64__)
  SIRTAKI_INLINE static Vec<float> read(const Byte* from) {
    const auto bits = Half::Convert::f16_to_f32(lengthened(load<Shorts>(from)));
    return __builtin_bit_cast(Vec<float>, bits);
  }

  SIRTAKI_INLINE static void write(Byte* to, Vec<float> numbers) {
    const auto bits = __builtin_bit_cast(Half::Bits, numbers);
    store(to, shortened(Half::Convert::f32_to_f16(bits)));
  }

  SIRTAKI_INLINE static Vec<float> rounded(Vec<float> numbers) {
    const auto bits = Half::Convert::f32_to_f16(__builtin_bit_cast(Half::Bits, numbers));
    return __builtin_bit_cast(Vec<float>, Half::Convert::f16_to_f32(bits));
  }
#else
  SIRTAKI_INLINE static Vec<float> read(const Byte* from) {
    return __builtin_bit_cast(Vec<float>, widen(load<Packed>(from)));
  }

  SIRTAKI_INLINE static void write(Byte* to, Vec<float> numbers) {
    store(to, narrow(__builtin_bit_cast(decltype(widen(Packed())), numbers)));
  }

  SIRTAKI_INLINE static Vec<float> rounded(Vec<float> numbers) {
    const auto half = narrow(__builtin_bit_cast(decltype(widen(Packed())), numbers));
    return __builtin_bit_cast(Vec<float>, widen(half));
  }
#endif
};

// Sources of the wire, folded and stored as float32.
template <typename Wire>
struct Widened : Float<float> {
  static constexpr size_t kSourceShare = kSize / sizeof(uint16_t);

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < kVectors; ++i) acc.part[i] = Wire::read(from + i * sizeof(Shorts));
    return acc;
  }
};

// Sources of float32, of which each number is rounded when it is read.
template <typename Wire>
struct Rounded : Float<float> {
  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc = Float<float>::load_block(from);
    for (auto& part : acc.part) part = Wire::rounded(part);
    return acc;
  }
};

template <typename Wire>
SIRTAKI_INLINE void round_block(Byte* to, const Byte* from) {
  const auto acc = Float<float>::load_block(from);
  for (int i = 0; i < Float<float>::kVectors; ++i) {
    Wire::write(to + i * sizeof(Shorts), acc.part[i]);
  }
}

template <typename Wire>
void round(void* to, const void* from, size_t count) {
  constexpr size_t kElements = Float<float>::kElements;
  constexpr size_t kStep = kElements * sizeof(float);
  Byte* const target = static_cast<Byte*>(to);
  const Byte* const source = static_cast<const Byte*>(from);
  const size_t rest = count % kElements * sizeof(float);
  const size_t end = count * sizeof(float) - rest;
  for (size_t at = 0; at < end; at += kStep) round_block<Wire>(target + at / 2, source + at);
  if (rest != 0) {
    Byte padded[kStep] = {};
    Byte rounded[kStep / 2];
    copy_bytes(padded, source + end, rest);
    round_block<Wire>(rounded, padded);
    copy_bytes(target + end / 2, rounded, rest / 2);
  }
}

#define SIRTAKI_WIRE_KERNEL(Wire) \
  {round<Wire>, SIRTAKI_FLOATS(Widened<Wire>), SIRTAKI_FLOATS(Rounded<Wire>)}

#define SIRTAKI_WIRE_KERNELS {SIRTAKI_WIRE_KERNEL(HalfWire), SIRTAKI_WIRE_KERNEL(BrainWire)}

}  // namespace
}  // namespace sirtaki
