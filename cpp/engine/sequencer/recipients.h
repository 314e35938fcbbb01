#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequencer/roster.h"

namespace sirtaki {

/// Whom a message of the sequencer is for.
struct Recipients {
  int32_t set;
  const Roster& members;   ///< of the set: all of them
  std::vector<int> ranks;  ///< only these, unless empty
};

}  // namespace sirtaki
