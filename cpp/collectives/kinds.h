#pragma once

#include <cstddef>
#include <cstdint>

namespace sirtaki {

enum class Kind : uint8_t {
  kAllreduce = 0,
  kAllgather,
  kBroadcast,
  kAlltoall,
  kReducescatter,
  kBarrier,
  kReduce,
  kGather,
  kScatter,
  kJoin,
  kAddSet,
  kRemoveSet,
};

inline constexpr int kKindCount = 12;

constexpr bool changes_sets(Kind kind) { return kind == Kind::kAddSet || kind == Kind::kRemoveSet; }

/// Which dimensions of a tensor must be equal on all ranks.
enum class ShapeRule : uint8_t { kNone, kAll, kAllButFirst };

/// What an operation is; a new kind is a new row.
struct KindTraits {
  const char* name;  ///< also the prefix of tensor names
  ShapeRule shapes;
  bool reduces;     ///< reduce op and scale must agree
  bool rooted;      ///< root must agree
  bool fusable;     ///< ready operations may be joined into one
  bool joinable;    ///< joined ranks take part with zeros
  bool gives_each;  ///< a member has a stream for each member
  bool takes_each;  ///< a member gets a stream of each member
};

inline const KindTraits& traits_of(Kind kind) {
  static constexpr KindTraits kTable[] = {
      {"allreduce", ShapeRule::kAll, true, false, true, true, false, false},
      {"allgather", ShapeRule::kAllButFirst, false, false, true, false, false, true},
      {"broadcast", ShapeRule::kAll, false, true, true, false, false, false},
      {"alltoall", ShapeRule::kAllButFirst, false, false, false, false, true, true},
      {"reducescatter", ShapeRule::kAll, true, false, true, false, true, false},
      {"barrier", ShapeRule::kNone, false, false, false, true, false, false},
      {"reduce", ShapeRule::kAll, true, true, false, false, false, false},
      {"gather", ShapeRule::kAllButFirst, false, true, false, false, false, true},
      {"scatter", ShapeRule::kAll, false, true, false, false, true, false},
      {"join", ShapeRule::kNone, false, false, false, false, false, false},
      {"add_process_set", ShapeRule::kNone, false, false, false, false, false, false},
      {"remove_process_set", ShapeRule::kNone, false, true, false, false, false, false},
  };
  return kTable[static_cast<size_t>(kind)];
}

}  // namespace sirtaki
