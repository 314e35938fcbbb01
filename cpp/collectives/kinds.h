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

/// What of its tensors a member has for the others.
enum class Layout : uint8_t {
  kWhole,      ///< all of them, as all members have them
  kGathered,   ///< all of their rows, of which members have different numbers
  kExchanged,  ///< some of the rows for each member
  kDealt,      ///< likewise, shared out evenly
  kPieces,     ///< one of them for each member
};

/// What an operation is; a new kind is a new row.
struct KindTraits {
  const char* name;  ///< also the prefix of tensor names
  ShapeRule shapes;
  Layout layout;
  bool reduces;   ///< reduce op and scale must agree
  bool rooted;    ///< root must agree
  bool fusable;   ///< ready operations may be joined into one
  bool joinable;  ///< joined ranks take part with zeros

  /// A member has a stream for each member.
  bool gives_each() const { return layout >= Layout::kExchanged; }
  /// A member gets a stream of each member.
  bool takes_each() const { return layout == Layout::kGathered || layout == Layout::kExchanged; }
  /// Tensors need rows.
  bool cuts_rows() const { return layout >= Layout::kGathered && layout <= Layout::kDealt; }
};

inline const KindTraits& traits_of(Kind kind) {
  static constexpr KindTraits kTable[] = {
      {"allreduce", ShapeRule::kAll, Layout::kWhole, true, false, true, true},
      {"allgather", ShapeRule::kAllButFirst, Layout::kGathered, false, false, true, false},
      {"broadcast", ShapeRule::kAll, Layout::kWhole, false, true, true, false},
      {"alltoall", ShapeRule::kAllButFirst, Layout::kExchanged, false, false, false, false},
      {"reducescatter", ShapeRule::kAll, Layout::kDealt, true, false, true, false},
      {"barrier", ShapeRule::kNone, Layout::kWhole, false, false, false, true},
      {"reduce", ShapeRule::kAll, Layout::kWhole, true, true, false, false},
      {"gather", ShapeRule::kAllButFirst, Layout::kGathered, false, true, false, false},
      {"scatter", ShapeRule::kAll, Layout::kPieces, false, true, false, false},
      {"join", ShapeRule::kNone, Layout::kWhole, false, false, false, false},
      {"add_process_set", ShapeRule::kNone, Layout::kWhole, false, false, false, false},
      {"remove_process_set", ShapeRule::kNone, Layout::kWhole, false, true, false, false},
  };
  return kTable[static_cast<size_t>(kind)];
}

}  // namespace sirtaki
