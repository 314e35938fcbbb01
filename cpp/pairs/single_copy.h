#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/memory/region.h"

namespace sirtaki {

/// Reads the memory of the processes of a host where the kernel allows it.
class SingleCopy {
 public:
  /// Lets the others read this rank's memory, which they may anyway: tells them how.
  SingleCopy(std::shared_ptr<Region> region, int place);

  /// Copies the beginning of what the rank at `place` has at `address`; how much that was, 0 if the
  /// kernel refuses or the peer's process is not known to be the one that it says.
  size_t copy(int place, uint64_t address, std::byte* to, size_t bytes);

 private:
  using Cookie = std::array<uint64_t, 2>;

  bool knows(int place);

  std::shared_ptr<Region> region_;
  std::unique_ptr<Cookie> cookie_;
  std::vector<bool> known_;  ///< by place: its number has been tried and is right
};

}  // namespace sirtaki
