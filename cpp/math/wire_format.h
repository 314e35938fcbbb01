#pragma once

#include <cstddef>
#include <cstdint>

#include "math/reduce.h"

namespace sirtaki {

// What float32 numbers are rounded to on their way to the other members of a sum; kOwn: they are
// not.
enum class WireFormat : uint8_t { kOwn = 0, kF16, kBF16 };

inline constexpr int kWireCount = 3;
// Bytes of a number on the wire.
inline constexpr size_t kWireBytes = 2;

constexpr const char* name(WireFormat wire) {
  constexpr const char* kNames[kWireCount] = {"none", "float16", "bfloat16"};
  return kNames[static_cast<size_t>(wire)];
}

// Rounds float32 numbers to the nearest ones of the wire, ties to even. A NaN becomes quiet and
// keeps the upper bits of its payload.
using RoundFn = void (*)(void* to, const void* from, size_t count);

// These are for the processor at hand, with the same bits on all; not for WireFormat::kOwn.
RoundFn round_fn(WireFormat wire);
// As reduce_fn of float32, but the sources are numbers of the wire. dst and copy overlap no source.
// Throws Error(kInvalid) for what reduce_fn refuses.
ReduceFn widening_reduce_fn(WireFormat wire, ReduceOp op);
// The same of sources that are float32, whose numbers are rounded when they are read.
ReduceFn rounding_reduce_fn(WireFormat wire, ReduceOp op);

}  // namespace sirtaki
