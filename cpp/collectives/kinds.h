#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace sirtaki {

class Group;
class Segments;
class Task;
class InterHostGroup;
enum class Algorithm : uint8_t;
struct Op;
struct Rest;

/// One stream for all members, or one for each: this depends on the kind of the operation.
using Streams = std::vector<Segments>;

/// Their numbers are part of the C interface, so a new kind comes last.
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
  kJoin,  // it and the next two are operations of the engine itself, which move no data
  kAddSet,
  kRemoveSet,
};

constexpr bool changes_sets(Kind kind) { return kind == Kind::kAddSet || kind == Kind::kRemoveSet; }

/// The dimensions of a tensor that must be equal on all ranks.
enum class ShapeRule : uint8_t { kNone, kAll, kAllButFirst };

/// The parts of its tensors that a member has for the others.
enum class Layout : uint8_t {
  kWhole,      ///< all of them, equal on all members
  kGathered,   ///< all of their rows, whose number may differ among members
  kExchanged,  ///< some of the rows for each member
  kDealt,      ///< the same, with an equal number for each
  kPieces,     ///< one tensor for each member
};

// The functions that carry the collectives out. Backend describes `in` and `out`; they must stay in
// place until the task is done. Streams that only the root sends or receives may be empty
// elsewhere.
//   allreduce      out = reduction of every member's `in`, bitwise equal on all members; `in` and
//                  `out` have equal segment borders and may be the same memory; with a codec all
//                  members have these borders
//   reduce         the same for the root
//   allgather      out[m] = member m's `in`
//   broadcast      every member's `out` = the root's `in`
//   alltoall       out[m] of member k = in[k] of member m
//   gather         out[m] of the root = member m's `in`: an alltoall
//   scatter        every member's `out` = the root's in[own number]: an alltoall
//   reducescatter  out = reduction of every member's in[own number]
//   barrier        returns only when all members have called it

/// Through the slots of a host, in member order.
using SlotsAlgorithm = Task(Group& group, const Op& op, const Streams& in, const Streams& out,
                            Algorithm algorithm);
SlotsAlgorithm slots_reduce, slots_allgather, slots_broadcast, slots_alltoall, slots_reducescatter,
    slots_barrier;

/// In shared heaps: data there are summed in place or copied straight to their destination.
using HeapsAlgorithm = Task(Group& group, const Op& op, const Streams& in, const Streams& out,
                            Rest& rest);
HeapsAlgorithm heaps_reduce, heaps_allgather, heaps_broadcast, heaps_alltoall, heaps_reducescatter;

/// Among hosts. Sums of one host's members travel in the operation's dtype, or encoded: 16-bit
/// floats and encoded numbers are accumulated in float32 within a host and rounded once, and again
/// among the hosts, as the algorithm requires.
using InterHostAlgorithm = Task(InterHostGroup& group, const Op& op, const Streams& in,
                                const Streams& out);
InterHostAlgorithm inter_host_allreduce, inter_host_reduce, inter_host_allgather,
    inter_host_broadcast, inter_host_alltoall, inter_host_reducescatter, inter_host_barrier;

/// The properties of an operation, and its algorithms; a new collective is a new row.
struct KindTraits {
  const char* name;  ///< also the prefix of tensor names
  ShapeRule shapes;
  Layout layout;
  bool reduces;   ///< the reduce op and scale must agree
  bool rooted;    ///< the root must agree
  bool fusable;   ///< ready operations may be joined into one
  bool joinable;  ///< joined ranks take part with zeros
  SlotsAlgorithm* slots = nullptr;
  HeapsAlgorithm* heaps = nullptr;  ///< null: through the slots, wherever data lie
  InterHostAlgorithm* inter_host = nullptr;

  /// Whether it is a collective, and none of the engine's own operations.
  bool moves_data() const { return slots != nullptr; }
  /// Whether a member has a stream for each member.
  bool gives_each() const { return layout >= Layout::kExchanged; }
  /// Whether a member gets a stream of each member.
  bool takes_each() const { return layout == Layout::kGathered || layout == Layout::kExchanged; }
  /// Whether tensors must have rows.
  bool cuts_rows() const { return layout >= Layout::kGathered && layout <= Layout::kDealt; }
  /// Whether only the root has a result.
  bool to_root() const { return rooted && (reduces || layout == Layout::kGathered); }
  /// Whether only the root's input is read.
  bool from_root() const { return rooted && !to_root(); }
};

/// By kind.
inline constexpr KindTraits kKinds[] = {
    {"allreduce", ShapeRule::kAll, Layout::kWhole, true, false, true, true,  //
     slots_reduce, heaps_reduce, inter_host_allreduce},
    {"allgather", ShapeRule::kAllButFirst, Layout::kGathered, false, false, true, false,
     slots_allgather, heaps_allgather, inter_host_allgather},
    {"broadcast", ShapeRule::kAll, Layout::kWhole, false, true, true, false,  //
     slots_broadcast, heaps_broadcast, inter_host_broadcast},
    {"alltoall", ShapeRule::kAllButFirst, Layout::kExchanged, false, false, false, false,
     slots_alltoall, heaps_alltoall, inter_host_alltoall},
    {"reducescatter", ShapeRule::kAll, Layout::kDealt, true, false, true, false,
     slots_reducescatter, heaps_reducescatter, inter_host_reducescatter},
    {"barrier", ShapeRule::kNone, Layout::kWhole, false, false, false, true,  //
     slots_barrier, nullptr, inter_host_barrier},
    {"reduce", ShapeRule::kAll, Layout::kWhole, true, true, false, false,  //
     slots_reduce, heaps_reduce, inter_host_reduce},
    {"gather", ShapeRule::kAllButFirst, Layout::kGathered, false, true, false, false,
     slots_alltoall, heaps_alltoall, inter_host_alltoall},
    {"scatter", ShapeRule::kAll, Layout::kPieces, false, true, false, false,  //
     slots_alltoall, heaps_alltoall, inter_host_alltoall},
    {"join", ShapeRule::kNone, Layout::kWhole, false, false, false, false},
    {"add_process_set", ShapeRule::kNone, Layout::kWhole, false, false, false, false},
    {"remove_process_set", ShapeRule::kNone, Layout::kWhole, false, true, false, false},
};
inline constexpr int kKindCount = std::size(kKinds);
static_assert(kKindCount == static_cast<int>(Kind::kRemoveSet) + 1);

inline const KindTraits& traits_of(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

}  // namespace sirtaki
