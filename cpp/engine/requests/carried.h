#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collectives/op.h"
#include "engine/requests/request.h"
#include "engine/requests/submission.h"
#include "transport/exchange_rules.h"

// Small sums among hosts need no messages of their own: each member's numbers travel with its
// report that it is ready, and the result with the agreement. It has the bits that the backend's
// would have.
namespace sirtaki {

/// The request of a set's members in a backend's words, without its streams.
Op op_of(const Request& request, size_t members);

/// The bytes of the numbers of each of `members` on so many hosts, in the form in which they
/// travel, if they may do so with reports; else 0.
size_t carried_bytes(const Request& request, size_t members, size_t hosts,
                     const ExchangeRules& rules);
/// Why no numbers of so many bytes can travel with the reports of such a request; else empty.
std::string not_carried(const Request& request, size_t bytes);

/// Appends a member's numbers to its report.
void append_numbers(std::string& report, const Submission& asked, size_t bytes);
/// The result. `numbers`: of all members, host by host; `on_hosts`: how many of them each host has.
std::string carried_sum(const Op& op, std::span<const int> on_hosts, const std::string& numbers);
/// Writes the result to its destination.
void deliver_carried(const Op& op, const std::string& result, const Segments& out);

}  // namespace sirtaki
