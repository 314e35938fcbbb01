#include "math/reduce.h"

#include <string>

#include "base/error.h"
#include "math/integers.h"
#include "math/reduce_levels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sirtaki {
namespace {

size_t column_of(ReduceOp op) {
  if (op == ReduceOp::kAdasum) {
    throw Error(ErrorCode::kInvalid, "Adasum is not reduced element by element",
                Scope::kAllMembers);
  }
  return op <= ReduceOp::kSum ? 0
                              : static_cast<size_t>(op) - static_cast<size_t>(ReduceOp::kAdasum);
}

#if defined(__x86_64__)
/// The highest level whose instructions the processor has and whose registers the kernel keeps.
/// With Zig's compiler-rt, __builtin_cpu_supports denies everything.
Level best_level() {
  constexpr unsigned kYmm = 0x6;
  constexpr unsigned kZmm = 0xe6;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return Level::kBaseline;
  const bool f16c = (c & bit_F16C) != 0;
  unsigned kept = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return Level::kBaseline;
  const bool v3 = (b & bit_AVX2) != 0 && f16c && (kept & kYmm) == kYmm;
  if (!v3) return Level::kBaseline;
  const bool v4 = (b & bit_AVX512F) != 0 && (b & bit_AVX512BW) != 0 && (kept & kZmm) == kZmm;
  return v4 ? Level::kV4 : Level::kV3;
}
#else
Level best_level() { return Level::kBaseline; }
#endif

/// Null if a codec has no such reduction.
ReduceFn find(const ReduceFn (&folds)[kCodecFolds], ReduceOp op) {
  return op == ReduceOp::kAdasum || is_bitwise(op) ? nullptr : folds[column_of(op)];
}

ReduceFn require(ReduceFn fn, ReduceOp op) {
  if (fn != nullptr) return fn;
  throw Error(ErrorCode::kInvalid, std::string("encoded numbers have no ") + name(op));
}

}  // namespace

const Kernels* find_kernels(Level level) {
  // Asks the processor only once: in a virtual machine that takes microseconds.
  static const Level best = best_level();
  if (level > best) return nullptr;
#if defined(__x86_64__)
  if (level == Level::kV4) return &kKernelsV4;
  if (level == Level::kV3) return &kKernelsV3;
#endif
  return &kKernelsBaseline;
}

const Kernels& best_kernels() {
  static const Kernels& best = *find_kernels(best_level());
  return best;
}

ReduceFn reduce_fn(const Kernels& kernels, Dtype dtype, ReduceOp op) {
  const size_t column = column_of(op);
  if (op == ReduceOp::kAverage && is_integer(dtype)) return average_fn(dtype);
  if (has_reduction(dtype, op)) return kernels.reduce[static_cast<size_t>(dtype)][column];
  throw Error(ErrorCode::kInvalid, std::string(name(op)) + " has no meaning for " + name(dtype),
              Scope::kAllMembers);
}

ReduceFn reduce_fn(Dtype dtype, ReduceOp op) { return reduce_fn(best_kernels(), dtype, op); }

const Codec* find_codec(const Kernels& kernels, CodecId id) {
  const size_t place = static_cast<size_t>(id) - 1;
  return place < kernels.codec_count ? kernels.codecs + place : nullptr;
}

const Codec* find_codec(CodecId id) { return find_codec(best_kernels(), id); }

int codec_count() { return static_cast<int>(best_kernels().codec_count) + 1; }

bool has_reduction(CodecId id, ReduceOp op) {
  const Codec* const codec = find_codec(id);
  return codec == nullptr ? has_reduction(Dtype::kF32, op) : find(codec->decode, op) != nullptr;
}

ReduceFn decode_fn(const Codec& codec, ReduceOp op) { return require(find(codec.decode, op), op); }

ReduceFn recode_fn(const Codec& codec, ReduceOp op) { return require(find(codec.recode, op), op); }

}  // namespace sirtaki
