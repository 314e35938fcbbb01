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
  switch (op) {
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
      return Fold::kSum;
    case ReduceOp::kMin:
      return Fold::kMin;
    case ReduceOp::kMax:
      return Fold::kMax;
    case ReduceOp::kProduct:
      return Fold::kProduct;
    case ReduceOp::kBitAnd:
      return Fold::kBitAnd;
    case ReduceOp::kBitOr:
      return Fold::kBitOr;
    case ReduceOp::kBitXor:
      return Fold::kBitXor;
    case ReduceOp::kAdasum:
      break;
  }
  throw Error(ErrorCode::kInvalid, "Adasum is not reduced element by element");
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

const WireKernels* wires_of(Level level) {
  if (level == Level::kV4) return kWiresV4;
  return level == Level::kV3 ? kWiresV3 : kWiresBaseline;
}
#else
bool detect(Level level) { return level == Level::kBaseline; }

const Kernels& kernels_of(Level) { return kKernelsBaseline; }
const WireKernels* wires_of(Level) { return kWiresBaseline; }
#endif

ReduceFn find(Level level, Dtype dtype, ReduceOp op) {
  const auto column = static_cast<size_t>(fold_of(op));
  if (has_reduction(dtype, op)) {
    const auto row = static_cast<size_t>(dtype);
    return row < kVectorCount ? kernels_of(level).reduce[row][column]
                              : kDerivedKernels[row - kVectorCount][column];
  }
  throw Error(ErrorCode::kInvalid, std::string(name(op)) + " has no meaning for " + name(dtype));
}

const WireKernels& find(Level level, WireFormat wire) {
  if (wire == WireFormat::kOwn) throw Error(ErrorCode::kInternal, "no numbers to round to");
  return wires_of(level)[static_cast<size_t>(wire) - 1];
}

/// Which of the kernels of a fold.
size_t column_of(Level level, ReduceOp op) {
  if (is_bitwise(op)) find(level, Dtype::kF32, op);
  return static_cast<size_t>(fold_of(op));
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

RoundFn round_fn_for_level(Level level, WireFormat wire) {
  require(level);
  return find(level, wire).round;
}

ReduceFn widening_reduce_fn_for_level(Level level, WireFormat wire, ReduceOp op) {
  require(level);
  return find(level, wire).widening[column_of(level, op)];
}

ReduceFn rounding_reduce_fn_for_level(Level level, WireFormat wire, ReduceOp op) {
  require(level);
  return find(level, wire).rounding[column_of(level, op)];
}

TileKernels tile_kernels(Level level, Dtype dtype) {
  require(level);
  return kernels_of(level).products[dtype == Dtype::kF64 ? 1 : 0];
}

// Without asking the processor again, which takes microseconds in a virtual machine.
ReduceFn reduce_fn(Dtype dtype, ReduceOp op) { return find(best_level(), dtype, op); }

RoundFn round_fn(WireFormat wire) { return find(best_level(), wire).round; }

ReduceFn widening_reduce_fn(WireFormat wire, ReduceOp op) {
  return find(best_level(), wire).widening[column_of(best_level(), op)];
}

ReduceFn rounding_reduce_fn(WireFormat wire, ReduceOp op) {
  return find(best_level(), wire).rounding[column_of(best_level(), op)];
}

}  // namespace sirtaki
