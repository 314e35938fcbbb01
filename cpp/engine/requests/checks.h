#pragma once

#include <cstddef>
#include <string>

#include "engine/requests/process_sets.h"
#include "engine/requests/request.h"

// Peers are believed in nothing that would lead this rank past the end of its memory. Each of these
// says what is wrong, and nothing if nothing is.
namespace sirtaki {

/// What no rank asks for, whatever its world: an operation, a type or a shape that cannot be.
std::string malformed(const Request& request);

/// The most rows of a tensor, of several members together, that can be.
int64_t most_rows(const Shape& shape);

/// What is wrong with the splits of an alltoall among `members` ranks.
std::string wrong_splits(const Request& request, size_t members);

/// What `members` ranks cannot run although they agree on it.
std::string unsupported(const Request& request, size_t members);

/// What is wrong with the ranks of a new process set, in a world of so many.
std::string wrong_ranks(const Request& request, size_t world);

/// Why what the sequencer decided cannot add or remove a process set.
std::string wrong_change(const Request& base, const ProcessSets& sets);

/// Why `rank`, which asked for `own` (null: for nothing), cannot run what the sequencer decided.
std::string contradiction(const Response& response, const Request* own, const ProcessSets& sets,
                          int rank);

}  // namespace sirtaki
