#pragma once

#include <cstddef>
#include <string>

#include "engine/requests/process_sets.h"
#include "engine/requests/request.h"
#include "engine/requests/submission.h"

// Nothing from peers is trusted that would lead this rank beyond the end of its memory. Each of
// these functions describes what is wrong, and returns an empty text if nothing is.
namespace sirtaki {

/// What no rank requests in any world: an impossible operation, type or shape.
std::string malformed(const Request& request);

/// The largest possible number of rows of a tensor, of several members together.
int64_t most_rows(const Shape& shape);

/// Checks the splits of an alltoall among `members` ranks.
std::string wrong_splits(const Request& request, size_t members);

/// The memory of the operation that `rank` lacks, in a set of this many members.
std::string missing_memory(const Submission& asked, int rank, size_t members);

/// Checks the root of an operation that has one.
std::string wrong_root(const Request& request, const ProcessSets& sets);

/// What `members` ranks cannot run, although they agree on it.
std::string unsupported(const Request& request, size_t members);

/// Checks the ranks of a new process set, in a world of this many.
std::string wrong_ranks(const Request& request, size_t world);

/// Why the sequencer's decision cannot add or remove a process set.
std::string wrong_change(const Request& base, const ProcessSets& sets);

/// Why `rank`, which requested `own` (null: nothing), cannot run what the sequencer decided.
std::string contradiction(const Response& response, const Request* own, const ProcessSets& sets,
                          int rank);

}  // namespace sirtaki
