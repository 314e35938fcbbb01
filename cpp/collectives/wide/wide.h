#pragma once

#include "collectives/op.h"
#include "collectives/wide/exchange_plan.h"
#include "transport/wide_group.h"

namespace sirtaki {

// The collectives of process sets that span hosts; contracts as in collectives.h.
//
// Sums of one host's members travel in the operation's dtype: 16-bit floats are accumulated in
// float32 within a host and rounded once, and again among the hosts, as their Exchange tells.

Task allreduce(WideGroup& group, const Op& op, const Segments& in, const Segments& out);
Task reduce(WideGroup& group, const Op& op, const Segments& in, const Segments& out);
Task reducescatter(WideGroup& group, const Op& op, const Streams& in, const Segments& out);
Task allgather(WideGroup& group, const Op& op, const Segments& in, const Streams& out);
Task broadcast(WideGroup& group, const Op& op, const Segments& in, const Segments& out);
/// Also of gather and scatter, which have bytes only to or from the root.
Task alltoall(WideGroup& group, const Op& op, const Streams& in, const Streams& out);
Task adasum(WideGroup& group, const Op& op, const Segments& in, const Segments& out);
Task barrier(WideGroup& group);

/// What both ends of a connection say about an operation before its bytes follow.
Greeting greeting_of(const Op& op, size_t bytes);

/// Awaited, connects to members that it is not connected to yet; they must do the same.
Task open(WideGroup& group, const std::vector<int>& members);

HostShape shape_of(const WideGroup& group);

/// Notes a whole stream to be sent to, or received from, a rank.
void send_stream(Sockets& net, int rank, const Segments& stream);
void receive_stream(Sockets& net, int rank, const Segments& stream);

/// The factors for the sum of a host's members, and for the sum of the hosts.
struct HostScales {
  Scale on_host;
  Scale among_hosts;
};
HostScales scales_of(const Op& op);

/// Few bytes inside a host, through its small slots: all give, then take what one of them has
/// given.
class SmallStage {
 public:
  SmallStage(WideGroup& group, size_t bytes)
      : local_(group.local()), shares_(group.shares()), bytes_(bytes) {}

  Task begin();
  /// Null: only tells the others that this member has come.
  void give(const Segments* in);
  auto all_have_given() { return local_.all_published(1); }
  std::byte* slot(int local_member) { return local_.small_slot(local_member, which_); }
  /// Null: nowhere.
  Task take(int local_member, const Segments* out);
  void end();

 private:
  Group& local_;
  bool shares_;
  size_t bytes_;
  int which_ = 0;
};

/// allreduce of few bytes (`out` null: the result is wanted elsewhere only); of none: a barrier.
Task reduce_at_once(WideGroup& group, const Op& op, const Segments& in, const Segments* out);

}  // namespace sirtaki
