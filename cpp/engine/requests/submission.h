#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/requests/handle.h"
#include "engine/requests/request.h"

namespace sirtaki {

/// What a caller wants done.
struct Submission {
  Request request;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;   ///< none for kinds whose result size is negotiated
  Allocate allocate = nullptr;  ///< memory for the results of these; null: the engine's own
  std::shared_ptr<Handle> handle = nullptr;  ///< the operation's; null: a new one
  int64_t number = 0;                        ///< of what the caller launches, in `launches`
};

/// The same, as the engine keeps it.
struct Entry : Submission {
  explicit Entry(Submission submission) : Submission(std::move(submission)) {}

  std::string encoded;  ///< the request
  uint64_t ordinal = 0;
  std::string no_memory;  ///< what `allocate` failed with; empty: it did not
};

}  // namespace sirtaki
