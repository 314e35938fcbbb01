#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/memory/region.h"

namespace sirtaki {

/// Reads the memory of other processes of a host if the kernel allows it.
class SingleCopy {
 public:
  /// Publishes how the others can read this rank's memory, which they are allowed to do anyway.
  SingleCopy(std::shared_ptr<Region> region, int place);

  /// Copies the first bytes at `address` of the rank at `place`; returns how many, 0 if the kernel
  /// refuses or the peer's process is not certain to be the one it claims to be.
  size_t copy(int place, uint64_t address, std::byte* to, size_t bytes);

 private:
  using Cookie = std::array<uint64_t, 2>;

  bool knows(int place);

  std::shared_ptr<Region> region_;
  std::unique_ptr<Cookie> cookie_;
  std::vector<bool> known_;  ///< by place: its process ID has been tried and is right
};

}  // namespace sirtaki
