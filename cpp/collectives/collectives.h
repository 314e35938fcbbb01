#pragma once

#include "collectives/op.h"
#include "transport/wide_group.h"

namespace sirtaki {

/// Runs an operation of a set with one member: copies, and scales where the operation reduces.
void run_alone(const Op& op, const Streams& in, const Streams& out);

/// Carries an operation out that moves data, or a barrier, among members on one host. What they
/// are and what must be given is in ways.h.
Task carry_out(Group& group, const Op& op, const Streams& in, const Streams& out);

/// The same among members on several hosts.
Task carry_out(WideGroup& group, const Op& op, const Streams& in, const Streams& out);

}  // namespace sirtaki
