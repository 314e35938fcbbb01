#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/observe/rank_state.h"
#include "engine/options.h"
#include "engine/sequencer/reports.h"

namespace sirtaki {

/// What a rank is doing; nothing: it is being found out.
using StateOf = std::function<std::optional<RankState>(int rank)>;

/// An operation that some members have not submitted for too long.
struct Stall {
  Pending* pending;
  double seconds;
  std::string missing;  ///< who they are, and what the first of them are doing
  bool fails;           ///< it has waited long enough; else a warning is due
};

/// Those of which it is known what the missing members are doing.
std::vector<Stall> find_stalls(Reports& reports, const EngineOptions& options, int64_t now_ns,
                               const StateOf& state_of);

}  // namespace sirtaki
