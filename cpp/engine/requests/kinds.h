#pragma once

#include "collectives/op.h"

namespace sirtaki {

/// Which dimensions of a tensor must be equal on all ranks.
enum class ShapeRule : uint8_t { kNone, kAll, kAllButFirst };

/// How the engine treats an operation; a new kind is a new row.
struct KindTraits {
  const char* name;  ///< also the prefix of tensor names
  ShapeRule shapes;
  bool reduces;   ///< reduce op and scale must agree
  bool rooted;    ///< root must agree
  bool fusable;   ///< ready operations may be joined into one
  bool joinable;  ///< joined ranks take part with zeros
};

inline const KindTraits& traits_of(Kind kind) {
  static constexpr KindTraits kTable[] = {
      {"allreduce", ShapeRule::kAll, true, false, true, true},
      {"allgather", ShapeRule::kAllButFirst, false, false, true, false},
      {"broadcast", ShapeRule::kAll, false, true, true, false},
      {"alltoall", ShapeRule::kAllButFirst, false, false, false, false},
      {"reducescatter", ShapeRule::kAll, true, false, true, false},
      {"barrier", ShapeRule::kNone, false, false, false, true},
      {"reduce", ShapeRule::kAll, true, true, false, false},
      {"gather", ShapeRule::kAllButFirst, false, true, false, false},
      {"scatter", ShapeRule::kAll, false, true, false, false},
      {"join", ShapeRule::kNone, false, false, false, false},
      {"add_process_set", ShapeRule::kNone, false, false, false, false},
      {"remove_process_set", ShapeRule::kNone, false, true, false, false},
  };
  return kTable[static_cast<size_t>(kind)];
}

}  // namespace sirtaki
