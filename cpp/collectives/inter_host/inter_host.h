#pragma once

#include "collectives/algorithm.h"
#include "transport/inter_host_group.h"

namespace sirtaki {

// Shared by the collectives of process sets that span hosts.

Problem problem_of(const InterHostGroup& group, const Op& op);

/// What both ends of a connection exchange about an operation before its bytes.
Greeting greeting_of(const Op& op, size_t bytes);

/// Awaited, connects to the members that have no connection yet, which must do the same; greets
/// those that it sends to, and expects greetings of those that it receives from.
Task open(InterHostGroup& group, const std::vector<int>& to, const std::vector<int>& from,
          Greeting greeting);

/// Notes a whole stream to be sent to, or received from, a rank.
void send_stream(InterHostNet& net, int rank, const Segments& stream);
void receive_stream(InterHostNet& net, int rank, const Segments& stream);

/// The scale factors for the sum of a host's members, and for the sum of the hosts.
struct HostScales {
  Scale on_host;
  Scale among_hosts;
};
HostScales scales_of(const Op& op);

/// allreduce of few bytes (`out` null: only other members need the result); of none: a barrier.
Task reduce_at_once(InterHostGroup& group, const Op& op, const Segments& in, const Segments* out);

}  // namespace sirtaki
