#pragma once

#include "collectives/ways.h"

namespace sirtaki {

// What the collectives of process sets that span hosts have in common.

Problem problem_of(const WideGroup& group, const Op& op);

/// What both ends of a connection say about an operation before its bytes follow.
Greeting greeting_of(const Op& op, size_t bytes);

/// Awaited, connects to members that it is not connected to yet, who must do the same; greets those
/// to whom something goes, and expects it of those from whom something comes.
Task open(WideGroup& group, const std::vector<int>& to, const std::vector<int>& from,
          Greeting greeting);

/// Notes a whole stream to be sent to, or received from, a rank.
void send_stream(WideNet& net, int rank, const Segments& stream);
void receive_stream(WideNet& net, int rank, const Segments& stream);

/// The factors for the sum of a host's members, and for the sum of the hosts.
struct HostScales {
  Scale on_host;
  Scale among_hosts;
};
HostScales scales_of(const Op& op);

/// allreduce of few bytes (`out` null: the result is wanted elsewhere only); of none: a barrier.
Task reduce_at_once(WideGroup& group, const Op& op, const Segments& in, const Segments* out,
                    Algorithm algorithm);

}  // namespace sirtaki
