#include "math/reduce.h"

#include <string>

#include "base/error.h"
#include "math/reduce_levels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sirtaki {
namespace {

Fold fold_of(ReduceOp op) {
  if (op == ReduceOp::kAdasum) {
    throw Error(ErrorCode::kInvalid, "Adasum is not reduced element by element",
                Scope::kAllMembers);
  }
  constexpr Fold kFolds[kReduceOpCount] = {Fold::kSum,    Fold::kSum,   Fold::kSum,
                                           Fold::kMin,    Fold::kMax,   Fold::kProduct,
                                           Fold::kBitAnd, Fold::kBitOr, Fold::kBitXor};
  return kFolds[static_cast<size_t>(op)];
}

#if defined(__x86_64__)
// Not every supported compiler knows "f16c" in __builtin_cpu_supports.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool detect(Level level) {
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") != 0 && has_f16c();
  if (level == Level::kBaseline) return true;
  if (level == Level::kV3) return v3;
  return v3 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
}

const Kernels& kernels_of(Level level) {
  if (level == Level::kV4) return kKernelsV4;
  return level == Level::kV3 ? kKernelsV3 : kKernelsBaseline;
}

const Codec* codecs_of(Level level) {
  if (level == Level::kV4) return kCodecsV4;
  return level == Level::kV3 ? kCodecsV3 : kCodecsBaseline;
}
#else
bool detect(Level level) { return level == Level::kBaseline; }

const Kernels& kernels_of(Level) { return kKernelsBaseline; }
const Codec* codecs_of(Level) { return kCodecsBaseline; }
#endif

ReduceFn find(Level level, Dtype dtype, ReduceOp op) {
  const auto column = static_cast<size_t>(fold_of(op));
  if (has_reduction(dtype, op)) {
    const auto row = static_cast<size_t>(dtype);
    return row < kVectorCount ? kernels_of(level).reduce[row][column]
                              : kDerivedKernels[row - kVectorCount][column];
  }
  throw Error(ErrorCode::kInvalid, std::string(name(op)) + " has no meaning for " + name(dtype),
              Scope::kAllMembers);
}

const Codec* find(Level level, CodecId id) {
  return id == CodecId::kNone ? nullptr : codecs_of(level) + static_cast<size_t>(id) - 1;
}

/// Null where a codec has no such reduction.
ReduceFn find(const ReduceFn (&folds)[kCodecFolds], ReduceOp op) {
  return op == ReduceOp::kAdasum || is_bitwise(op) ? nullptr
                                                   : folds[static_cast<size_t>(fold_of(op))];
}

ReduceFn require(ReduceFn fn, ReduceOp op) {
  if (fn != nullptr) return fn;
  throw Error(ErrorCode::kInvalid, std::string("encoded numbers have no ") + name(op));
}

void require(Level level) {
  if (level == best_level() || level_available(level)) return;
  throw Error(ErrorCode::kInvalid, "reduction kernels of level " +
                                       std::to_string(static_cast<int>(level)) +
                                       " do not run on this processor");
}

}  // namespace

bool level_available(Level level) { return detect(level); }

Level best_level() {
  static const Level best = detect(Level::kV4)   ? Level::kV4
                            : detect(Level::kV3) ? Level::kV3
                                                 : Level::kBaseline;
  return best;
}

ReduceFn reduce_fn_for_level(Level level, Dtype dtype, ReduceOp op) {
  require(level);
  return find(level, dtype, op);
}

const Codec* find_codec_for_level(Level level, CodecId id) {
  require(level);
  return find(level, id);
}

TileKernels tile_kernels(Level level, Dtype dtype) {
  require(level);
  return kernels_of(level).products[dtype == Dtype::kF64 ? 1 : 0];
}

// Without asking the processor again, which takes microseconds in a virtual machine.
ReduceFn reduce_fn(Dtype dtype, ReduceOp op) { return find(best_level(), dtype, op); }

const Codec* find_codec(CodecId id) { return find(best_level(), id); }

bool has_reduction(CodecId id, ReduceOp op) {
  const Codec* const codec = find_codec(id);
  return codec == nullptr ? has_reduction(Dtype::kF32, op) : find(codec->decode, op) != nullptr;
}

ReduceFn decode_fn(const Codec& codec, ReduceOp op) { return require(find(codec.decode, op), op); }

ReduceFn recode_fn(const Codec& codec, ReduceOp op) { return require(find(codec.recode, op), op); }

}  // namespace sirtaki
