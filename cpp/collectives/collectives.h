#pragma once

#include "collectives/op.h"
#include "transport/wide_group.h"

namespace sirtaki {

/// Runs an operation of a set with one member: copies, and scales where the operation reduces.
void run_alone(const Op& op, const Streams& in, const Streams& out);

/// Carries an operation out that moves data, or a barrier, among members on one host (a Group) or
/// on several (a WideGroup). What they are and what must be given is in ways.h.
template <class AnyGroup>
Task carry_out(AnyGroup& group, const Op& op, const Streams& in, const Streams& out);

}  // namespace sirtaki
