#pragma once

#include <cstdint>
#include <vector>

#include "collectives/op.h"

namespace sirtaki {

/// Everything an engine needs of whatever moves the data. One thread at a time calls it.
///
/// `in` and `out` hold one stream, or one for each member of the set where the kind says so:
///   allreduce, reduce, broadcast   in[0] → out[0] (same segment borders)
///   allgather, gather              in[0] → out[member]
///   scatter, alltoall              in[member] → out[0] or out[member]
///   reducescatter                  in[member] → out[0]
///   send, recv                     in[0] or out[0]; `op.root` is the peer
///   barrier                        nothing
/// Streams that a member has no part in are empty. Throws PeerLost when a member is gone.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const char* name() const = 0;
  virtual void run(const Op& op, const Streams& in, const Streams& out) = 0;

  /// Makes a process set usable; called on every rank of the world, in the same order.
  virtual void add_set(int32_t set, const std::vector<int>& ranks) = 0;
  virtual void remove_set(int32_t set) = 0;
};

}  // namespace sirtaki
