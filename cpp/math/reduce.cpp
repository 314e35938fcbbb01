#include "math/reduce.h"

#include <string>

#include "base/error.h"
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
// Not every supported compiler knows "f16c" in __builtin_cpu_supports.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

/// Null where a codec has no such reduction.
ReduceFn find(const ReduceFn (&folds)[kCodecFolds], ReduceOp op) {
  return op == ReduceOp::kAdasum || is_bitwise(op) ? nullptr : folds[column_of(op)];
}

ReduceFn require(ReduceFn fn, ReduceOp op) {
  if (fn != nullptr) return fn;
  throw Error(ErrorCode::kInvalid, std::string("encoded numbers have no ") + name(op));
}

}  // namespace

const Kernels* find_kernels(Level level) {
  if (level == Level::kBaseline) return &kKernelsBaseline;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") != 0 && has_f16c();
  if (level == Level::kV3) return v3 ? &kKernelsV3 : nullptr;
  const bool v4 =
      v3 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  if (v4) return &kKernelsV4;
#endif
  return nullptr;
}

// Asks the processor once, which takes microseconds in a virtual machine.
const Kernels& best_kernels() {
  static const Kernels& best = [&]() -> const Kernels& {
    for (const Level level : {Level::kV4, Level::kV3}) {
      if (const Kernels* const kernels = find_kernels(level)) return *kernels;
    }
    return kKernelsBaseline;
  }();
  return best;
}

ReduceFn reduce_fn(const Kernels& kernels, Dtype dtype, ReduceOp op) {
  const size_t column = column_of(op);
  if (has_reduction(dtype, op)) return kernels.reduce[static_cast<size_t>(dtype)][column];
  throw Error(ErrorCode::kInvalid, std::string(name(op)) + " has no meaning for " + name(dtype),
              Scope::kAllMembers);
}

ReduceFn reduce_fn(Dtype dtype, ReduceOp op) { return reduce_fn(best_kernels(), dtype, op); }

const Codec* find_codec(const Kernels& kernels, CodecId id) {
  return id == CodecId::kNone ? nullptr : kernels.codecs + static_cast<size_t>(id) - 1;
}

const Codec* find_codec(CodecId id) { return find_codec(best_kernels(), id); }

bool has_reduction(CodecId id, ReduceOp op) {
  const Codec* const codec = find_codec(id);
  return codec == nullptr ? has_reduction(Dtype::kF32, op) : find(codec->decode, op) != nullptr;
}

ReduceFn decode_fn(const Codec& codec, ReduceOp op) { return require(find(codec.decode, op), op); }

ReduceFn recode_fn(const Codec& codec, ReduceOp op) { return require(find(codec.recode, op), op); }

}  // namespace sirtaki
