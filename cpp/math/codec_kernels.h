// Kernels of the codecs; as reduce_kernels.h, of which this is the other half. A codec is what
// encodes and decodes, and a row of SIRTAKI_CODECS, in the order of CodecId.
#pragma once

#include "math/reduce_kernels.h"

namespace sirtaki {
namespace {

// ---- 16 bits: each number is rounded to the nearest one, ties to even, a NaN to a quiet one ----

// As many 16-bit numbers as there are float32 in a vector, in the same order.
typedef uint16_t Shorts __attribute__((vector_size(SIRTAKI_VECTOR_BYTES / 2)));

SIRTAKI_INLINE Half::Bits lengthened(Shorts shorts) {
  return __builtin_convertvector(shorts, Half::Bits);
}

SIRTAKI_INLINE Shorts shortened(Half::Bits bits) { return __builtin_convertvector(bits, Shorts); }

struct BrainCode {
  SIRTAKI_INLINE static Vec<float> read(const Byte* from) {
    return __builtin_bit_cast(Vec<float>, lengthened(load<Shorts>(from)) << 16);
  }

  SIRTAKI_INLINE static void write(Byte* to, Vec<float> numbers) {
    const auto bits = __builtin_bit_cast(Half::Bits, numbers);
    store(to, shortened(Half::Convert::f32_to_bf16(bits)));
  }
};

struct HalfCode {
#if SIRTAKI_VECTOR_BYTES == 16 && !defined(__aarch64__)
  SIRTAKI_INLINE static Vec<float> read(const Byte* from) {
    const auto bits = Half::Convert::f16_to_f32(lengthened(load<Shorts>(from)));
    return __builtin_bit_cast(Vec<float>, bits);
  }

  SIRTAKI_INLINE static void write(Byte* to, Vec<float> numbers) {
    const auto bits = __builtin_bit_cast(Half::Bits, numbers);
    store(to, shortened(Half::Convert::f32_to_f16(bits)));
  }
#else
  SIRTAKI_INLINE static Vec<float> read(const Byte* from) {
    return __builtin_bit_cast(Vec<float>, widen(load<Packed>(from)));
  }

  SIRTAKI_INLINE static void write(Byte* to, Vec<float> numbers) {
    store(to, narrow(__builtin_bit_cast(decltype(widen(Packed())), numbers)));
  }
#endif
};

// Encoded sources, folded and stored as float32.
template <typename Code>
struct Widened : Float<float> {
  static constexpr size_t kSourceShare = kSize / sizeof(uint16_t);

  SIRTAKI_INLINE static Acc load_block(const Byte* from) {
    Acc acc;
    for (int i = 0; i < kVectors; ++i) acc.part[i] = Code::read(from + i * sizeof(Shorts));
    return acc;
  }
};

template <typename Code>
SIRTAKI_INLINE void round_block(Byte* to, const Byte* from) {
  const auto acc = Float<float>::load_block(from);
  for (int i = 0; i < Float<float>::kVectors; ++i) {
    Code::write(to + i * sizeof(Shorts), acc.part[i]);
  }
}

template <typename Code>
void round(void* to, const void* from, size_t count) {
  constexpr size_t kElements = Float<float>::kElements;
  constexpr size_t kStep = kElements * sizeof(float);
  Byte* const target = static_cast<Byte*>(to);
  const Byte* const source = static_cast<const Byte*>(from);
  const size_t rest = count % kElements * sizeof(float);
  const size_t end = count * sizeof(float) - rest;
  for (size_t at = 0; at < end; at += kStep) round_block<Code>(target + at / 2, source + at);
  if (rest != 0) {
    Byte padded[kStep] = {};
    Byte rounded[kStep / 2];
    copy_bytes(padded, source + end, rest);
    round_block<Code>(rounded, padded);
    copy_bytes(target + end / 2, rounded, rest / 2);
  }
}

// ---- blocks: the numbers of each are encoded together ----

// What is decoded of a block, or is to be encoded, in registers.
typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourBits __attribute__((vector_size(16)));
typedef int8_t FourBytes __attribute__((vector_size(4)));

// A float32 and 60 bytes, which make a line: each number is the first times a whole number from
// -127 to 127, of which the largest has 127. Dettmers, "8-bit approximations for parallelism in
// deep learning" (2016), scales gradients by the largest, and "8-bit optimizers via block-wise
// quantization" (2022) each block by its own.
//
// Of a block that has a number that is not finite all become NaN. Where the largest is so small
// that the scale would not be a normal float32, all become 0.
struct Int8 {
  static constexpr size_t kNumbers = 60;
  static constexpr size_t kBytes = 64;
  static constexpr int kParts = kNumbers / 4;
  static constexpr float kMost = 127;
  static constexpr float kLeast = 0x1p-119f;

  struct Numbers {
    Four part[kParts];
  };

  SIRTAKI_INLINE static Numbers decode(const Byte* from) {
    const Four scale = load<float>(from) - Four{};
    Numbers numbers;
    for (int i = 0; i < kParts; ++i) {
      const auto whole = load<FourBytes>(from + sizeof(float) + 4 * i);
      numbers.part[i] = __builtin_convertvector(whole, Four) * scale;
    }
    return numbers;
  }

  SIRTAKI_INLINE static void encode(Byte* to, const Numbers& numbers) {
    const int32_t bits = largest(numbers);
    const float most = __builtin_bit_cast(float, bits);
    const bool finite = bits < 0x7f800000;
    if (!finite || most < kLeast) return write(to, finite ? 0.0f : __builtin_nanf(""));
    store(to, most / kMost);
    const float inverse = kMost / most;
    for (int i = 0; i < kParts; ++i) {
      // The sum's last bits are those of the nearest whole number, ties to even.
      const Four sum = numbers.part[i] * inverse + 0x1.8p23f;
      const auto whole = __builtin_convertvector(__builtin_bit_cast(FourBits, sum), FourBytes);
      store(to + sizeof(float) + 4 * i, whole);
    }
  }

 private:
  // The bits of the largest magnitude; those of NaN and infinity are larger than all others.
  SIRTAKI_INLINE static int32_t largest(const Numbers& numbers) {
    FourBits most = {};
    for (const Four& part : numbers.part) {
      const FourBits bits = __builtin_bit_cast(FourBits, part) & 0x7fffffff;
      most = bits > most ? bits : most;
    }
    int32_t result = most[0];
    for (int i = 1; i < 4; ++i) result = most[i] > result ? most[i] : result;
    return result;
  }

  SIRTAKI_INLINE static void write(Byte* to, float scale) {
    store(to, scale);
    for (int i = 0; i < kParts; ++i) store(to + sizeof(float) + 4 * i, FourBytes{});
  }
};

template <typename Numbers>
SIRTAKI_INLINE Numbers load_numbers(const Byte* from) {
  Numbers numbers;
  for (Four& part : numbers.part) {
    part = load<Four>(from);
    from += sizeof part;
  }
  return numbers;
}

template <typename Numbers>
SIRTAKI_INLINE void store_numbers(Byte* to, const Numbers& numbers) {
  for (const Four& part : numbers.part) {
    store(to, part);
    to += sizeof part;
  }
}

template <typename Coded>
void encode_blocks(void* to, const void* from, size_t count) {
  constexpr size_t kStep = Coded::kNumbers * sizeof(float);
  Byte* target = static_cast<Byte*>(to);
  const Byte* source = static_cast<const Byte*>(from);
  for (; count >= Coded::kNumbers; count -= Coded::kNumbers) {
    Coded::encode(target, load_numbers<typename Coded::Numbers>(source));
    target += Coded::kBytes;
    source += kStep;
  }
  if (count == 0) return;
  Byte padded[kStep] = {};
  copy_bytes(padded, source, count * sizeof(float));
  Coded::encode(target, load_numbers<typename Coded::Numbers>(padded));
}

template <typename Numbers>
SIRTAKI_INLINE void multiply(Numbers& numbers, float factor) {
  for (Four& part : numbers.part) part = part * factor;
}

// The sum of a block of all sources.
template <typename Coded>
SIRTAKI_INLINE typename Coded::Numbers sum_block(const Pass& pass, size_t at) {
  const auto pre = static_cast<float>(pass.pre);
  auto sum = Coded::decode(pass.src(0) + at);
  multiply(sum, pre);
  for (int k = 1; k < pass.n; ++k) {
    auto next = Coded::decode(pass.src(k) + at);
    multiply(next, pre);
    for (int i = 0; i < Coded::kParts; ++i) sum.part[i] = sum.part[i] + next.part[i];
  }
  multiply(sum, static_cast<float>(pass.post));
  return sum;
}

template <typename Coded>
void sum_decoded(void* dst, void* copy, const void* const* srcs, int n, size_t count, Scale scale) {
  const Pass pass = {nullptr, nullptr, srcs, n, scale.pre, scale.post};
  Byte* const targets[] = {static_cast<Byte*>(dst), static_cast<Byte*>(copy)};
  for (size_t begin = 0, at = 0; begin < count; begin += Coded::kNumbers, at += Coded::kBytes) {
    const auto sum = sum_block<Coded>(pass, at);
    for (Byte* const target : targets) {
      if (target == nullptr) continue;
      if (count - begin >= Coded::kNumbers) {
        store_numbers(target + begin * sizeof(float), sum);
      } else {
        Byte whole[sizeof sum];
        store_numbers(whole, sum);
        copy_bytes(target + begin * sizeof(float), whole, (count - begin) * sizeof(float));
      }
    }
  }
}

template <typename Coded>
void sum_recoded(void* dst, void* copy, const void* const* srcs, int n, size_t count, Scale scale) {
  const Pass pass = {nullptr, nullptr, srcs, n, scale.pre, scale.post};
  for (size_t at = 0; at < count / Coded::kNumbers * Coded::kBytes; at += Coded::kBytes) {
    const auto sum = sum_block<Coded>(pass, at);
    Coded::encode(static_cast<Byte*>(dst) + at, sum);
    if (copy != nullptr) Coded::encode(static_cast<Byte*>(copy) + at, sum);
  }
}

// ---- the table ----

// `Code` encodes and decodes numbers of `dtype`, which `Format` reduces.
#define SIRTAKI_CODEC_OF_16_BITS(Code, dtype, Format) \
  {1, 2, dtype, round<Code>, SIRTAKI_FLOATS(Widened<Code>), SIRTAKI_FLOATS(Format)}

#define SIRTAKI_CODEC_OF_BLOCKS(Coded)                                                         \
  {                                                                                            \
    Coded::kNumbers, Coded::kBytes, Dtype::kF32, encode_blocks<Coded>, {sum_decoded<Coded>}, { \
      sum_recoded<Coded>                                                                       \
    }                                                                                          \
  }

#define SIRTAKI_CODECS                                       \
  {SIRTAKI_CODEC_OF_16_BITS(HalfCode, Dtype::kF16, Float16), \
   SIRTAKI_CODEC_OF_16_BITS(BrainCode, Dtype::kBF16, Brain16), SIRTAKI_CODEC_OF_BLOCKS(Int8)}

}  // namespace
}  // namespace sirtaki
