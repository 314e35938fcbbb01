// Reductions of dtypes that are rare: by way of kernels of other dtypes where those do the same,
// and else by loops that are compiled once, for every processor.
#include <algorithm>
#include <cstring>

#include "math/half.h"
#include "math/reduce_levels.h"
#include "math/truncate.h"

namespace sirtaki {
namespace {

// ---- formats: what lies in memory, and in what it is computed ----

template <typename T>
struct Whole {
  using Memory = T;
  using Value = T;
  static constexpr int kParts = 1;
  static T decode(T value) { return value; }
  static T encode(T value) { return value; }
  static T scaled(T value, double factor) {
    return truncate<T>(static_cast<double>(value) * factor);
  }
};

template <typename T>
struct Complex {
  using Memory = T;
  using Value = T;
  static constexpr int kParts = 2;
  static T decode(T value) { return value; }
  static T encode(T value) { return value; }
  static T scaled(T value, double factor) { return value * static_cast<T>(factor); }
};

struct HalfComplex : Complex<float> {
  using Memory = uint16_t;
  static float decode(uint16_t half) { return f16_to_f32(half); }
  static uint16_t encode(float value) { return f32_to_f16(value); }
};

// ---- loops ----

/// The parts of a few elements.
template <typename Format>
class Tile {
 public:
  using Value = typename Format::Value;
  using Memory = typename Format::Memory;
  static constexpr size_t kElements = 64;
  static constexpr size_t kParts = kElements * Format::kParts;

  void load(const void* from, size_t at, size_t count, double factor) {
    std::memcpy(memory_, static_cast<const Memory*>(from) + at, count * sizeof(Memory));
    for (size_t i = 0; i < kParts; ++i) values[i] = Format::decode(memory_[i]);
    multiply(factor);
  }

  void multiply(double factor) {
    if (factor == 1.0) return;
    for (Value& value : values) value = Format::scaled(value, factor);
  }

  void encode() {
    for (size_t i = 0; i < kParts; ++i) memory_[i] = Format::encode(values[i]);
  }

  void store(void* to, size_t at, size_t count) const {
    if (to != nullptr) std::memcpy(static_cast<Memory*>(to) + at, memory_, count * sizeof(Memory));
  }

  Value values[kParts];

 private:
  Memory memory_[kParts] = {};
};

template <typename Format, Fold kFold>
void fold(Tile<Format>& acc, const Tile<Format>& next) {
  auto* const a = acc.values;
  const auto* const b = next.values;
  for (size_t i = 0; i < Tile<Format>::kParts; i += Format::kParts) {
    if constexpr (Format::kParts == 2) {
      static_assert(kFold == Fold::kProduct);
      const auto real = a[i] * b[i] - a[i + 1] * b[i + 1];
      a[i + 1] = a[i] * b[i + 1] + a[i + 1] * b[i];
      a[i] = real;
    } else {
      using Value = typename Format::Value;
      if (kFold == Fold::kSum) a[i] = static_cast<Value>(a[i] + b[i]);
      // As 64 bits, which wrap around: two uint16 would become an int, which does not.
      if (kFold == Fold::kProduct) a[i] = static_cast<Value>(uint64_t{a[i]} * b[i]);
      if (kFold == Fold::kMin) a[i] = std::min(a[i], b[i]);
      if (kFold == Fold::kMax) a[i] = std::max(a[i], b[i]);
      if (kFold == Fold::kBitAnd) a[i] = a[i] & b[i];
      if (kFold == Fold::kBitOr) a[i] = a[i] | b[i];
      if (kFold == Fold::kBitXor) a[i] = a[i] ^ b[i];
    }
  }
}

/// Everything of a tile is read before anything is written, so dst and copy may be sources.
template <typename Format>
[[gnu::noinline]] void reduce_tiles(void (*fold_in)(Tile<Format>&, const Tile<Format>&), void* dst,
                                    void* copy, const void* const* srcs, int n, size_t count,
                                    Scale scale) {
  Tile<Format> acc;
  Tile<Format> next;
  const size_t end = count * Format::kParts;
  for (size_t at = 0; at < end; at += Tile<Format>::kParts) {
    const size_t parts = std::min(Tile<Format>::kParts, end - at);
    acc.load(srcs[0], at, parts, scale.pre);
    for (int k = 1; k < n; ++k) {
      next.load(srcs[k], at, parts, scale.pre);
      fold_in(acc, next);
    }
    acc.multiply(scale.post);
    acc.encode();
    acc.store(dst, at, parts);
    acc.store(copy, at, parts);
  }
}

template <typename Format, Fold kFold>
void reduce(void* dst, void* copy, const void* const* srcs, int n, size_t count, Scale scale) {
  reduce_tiles<Format>(fold<Format, kFold>, dst, copy, srcs, n, count, scale);
}

// ---- by way of other dtypes ----

/// Without factors the sign makes no difference to sums, products and bits.
template <typename T, Dtype kSigned, Fold kFold, ReduceOp kOp>
void reduce_unsigned(void* dst, void* copy, const void* const* srcs, int n, size_t count,
                     Scale scale) {
  const bool plain = scale.pre == 1.0 && scale.post == 1.0;
  const ReduceFn fn = plain ? reduce_fn(kSigned, kOp) : reduce<Whole<T>, kFold>;
  fn(dst, copy, srcs, n, count, scale);
}

/// Complex numbers are added part by part.
template <Dtype kPart>
void add_parts(void* dst, void* copy, const void* const* srcs, int n, size_t count, Scale scale) {
  reduce_fn(kPart, ReduceOp::kSum)(dst, copy, srcs, n, 2 * count, scale);
}

#define SIRTAKI_UNSIGNED(T, kSigned)                                \
  {reduce_unsigned<T, kSigned, Fold::kSum, ReduceOp::kSum>,         \
   reduce<Whole<T>, Fold::kMin>,                                    \
   reduce<Whole<T>, Fold::kMax>,                                    \
   reduce_unsigned<T, kSigned, Fold::kProduct, ReduceOp::kProduct>, \
   reduce_unsigned<T, kSigned, Fold::kBitAnd, ReduceOp::kBitAnd>,   \
   reduce_unsigned<T, kSigned, Fold::kBitOr, ReduceOp::kBitOr>,     \
   reduce_unsigned<T, kSigned, Fold::kBitXor, ReduceOp::kBitXor>}

#define SIRTAKI_COMPLEX(Format, kPart) \
  {add_parts<kPart>, nullptr, nullptr, reduce<Format, Fold::kProduct>}

}  // namespace

constinit const ReduceFn kDerivedKernels[][kFoldCount] = {
    SIRTAKI_UNSIGNED(uint16_t, Dtype::kI16),      SIRTAKI_UNSIGNED(uint32_t, Dtype::kI32),
    SIRTAKI_UNSIGNED(uint64_t, Dtype::kI64),      SIRTAKI_COMPLEX(HalfComplex, Dtype::kF16),
    SIRTAKI_COMPLEX(Complex<float>, Dtype::kF32), SIRTAKI_COMPLEX(Complex<double>, Dtype::kF64)};

}  // namespace sirtaki
