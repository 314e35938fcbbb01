#pragma once

#include <vector>

#include "math/reduce_levels.h"

namespace sirtaki::testing {

/// The SIMD levels that this processor has.
inline std::vector<Level> levels() {
  std::vector<Level> available;
  for (const Level level : {Level::kBaseline, Level::kV3, Level::kV4}) {
    if (find_kernels(level) != nullptr) available.push_back(level);
  }
  return available;
}

}  // namespace sirtaki::testing
