#pragma once

#include <cstdint>
#include <vector>

#include "backends/work.h"
#include "collectives/op.h"

namespace sirtaki {

/// The interface between an engine and the code that moves the data. One thread at a time calls it.
///
/// `in` and `out` hold one stream or, depending on the kind, one for each member of the set:
///   allreduce, reduce, broadcast   in[0] → out[0] (same segment borders)
///   allgather, gather              in[0] → out[member]
///   scatter, alltoall              in[member] → out[0] or out[member]
///   reducescatter                  in[member] → out[0]
///   barrier                        nothing
/// Streams that do not involve a member are empty.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const char* name() const = 0;

  /// Begins an operation; no other one of its track may be in progress. Its memory must stay in
  /// place until the work is done or destroyed.
  virtual WorkPtr start(const Op& op, const Streams& in, const Streams& out) = 0;

  /// Whether its small sums among hosts may come with the agreement instead: their bits are those
  /// of `add_gathered`.
  virtual bool may_be_spared() const { return false; }

  /// Operations of one track run one after another, in the sequencer's order; those of several
  /// tracks run side by side. Equal on all members.
  virtual int track_of(int32_t set) const = 0;

  /// Begin to make a process set usable, or to remove it; on every rank of the world, in the same
  /// order, with nothing else in progress.
  virtual WorkPtr add_set(int32_t set, const std::vector<int>& ranks) = 0;
  virtual WorkPtr remove_set(int32_t set) = 0;
};

}  // namespace sirtaki
