#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/engine.h"

namespace sirtaki {

/// The addresses from the first byte of a tensor to the end of its last, and the tensor's number.
struct Extent {
  uintptr_t begin;
  uintptr_t end;
  size_t tensor;
};

/// The memory that an operation only reads, by its start; and the memory that it writes, no two
/// places of which overlap.
struct Uses {
  std::vector<Extent> reads;
  std::vector<Extent> writes;

  uintptr_t begin() const;
  uintptr_t end() const;
  bool overlaps(const Uses& other) const;
};

/// A tensor that an operation writes shares memory with another of its tensors.
struct Overlap : Error {
  using Error::Error;
};

/// The memory of an operation. Throws Overlap unless each tensor that it writes has its own memory,
/// or replaces its input in a way that this operation allows.
Uses uses_of(const Submission& asked, Engine& engine);

/// The memory of the process's operations in progress.
class Claims {
 public:
  struct Claim {
    Uses memory;
    std::weak_ptr<Handle> handle;
    std::weak_ptr<Engine> engine;
  };

  static Claims& of_process();

  void add(Claim claim);
  /// A claim that this memory must wait for: the earlier operation writes some of it, or reads what
  /// is to be written. Empty: there is none.
  Claim before(const Uses& memory);

 private:
  void forget_done();

  std::mutex mutex_;
  std::vector<Claim> claims_;
  std::vector<uintptr_t> begins_;  ///< the start of their memory, for a quick search
  std::vector<uintptr_t> ends_;
  size_t most_ = 64;  ///< claims, before finished ones are removed
};

}  // namespace sirtaki
