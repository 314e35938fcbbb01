#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/requests/handle.h"
#include "engine/requests/request.h"

namespace sirtaki {

/// A caller's request.
struct Submission {
  Request request;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;         ///< none for kinds whose result size is negotiated
  Allocate allocate = nullptr;        ///< memory for these results; null: the engine's own
  std::vector<Segment> results = {};  ///< the place of that memory, if the caller already knows it
  std::shared_ptr<Handle> handle = nullptr;  ///< the operation's handle; null: a new one
  int64_t number = 0;                        ///< in `launches`, if the caller launches it
  std::string encoded = {};  ///< the request, which is then well-formed; empty: not known yet
};

/// The engine's copy of a submission.
struct Entry : Submission {
  explicit Entry(Submission&& submission) : Submission(std::move(submission)) {}

  uint64_t ordinal = 0;
  uint32_t carried_as =
      0;                  ///< the id under which its numbers were sent to rank 0; 0: they were not
  std::string no_memory;  ///< the error of `allocate`; empty: it had none
};

}  // namespace sirtaki
