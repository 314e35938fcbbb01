#pragma once

#include <span>

#include "collectives/op.h"
#include "transport/inter_host_group.h"

namespace sirtaki {

/// Runs an operation of a set with one member: copies, and scales if the operation reduces.
void run_alone(const Op& op, const Streams& in, const Streams& out);

/// Runs an operation that moves data, or a barrier, among members on one host (a Group) or on
/// several (an InterHostGroup). kinds.h describes the operations and their arguments.
template <class AnyGroup>
Task carry_out(AnyGroup& group, const Op& op, const Streams& in, const Streams& out);

/// Adasum of every member's vectors, for each segment on its own; consists of other collectives.
template <class AnyGroup>
Task adasum(AnyGroup& group, const Op& op, const Segments& in, const Segments& out);

/// The sum of few numbers, with the bits that an allreduce among hosts gives it: `numbers` has
/// `bytes` of each member in the form in which they travel, host by host; `on_hosts`: how many
/// members each host has. The result is in that form, too.
void add_gathered(const Op& op, std::span<const int> on_hosts, const std::byte* numbers,
                  size_t bytes, std::byte* result);

/// Replaces the three reductions among hosts for averages of integers, which are exact.
InterHostAlgorithm inter_host_average;

}  // namespace sirtaki
