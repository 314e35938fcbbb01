#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "heap/arena.h"

namespace sirtaki::heap {

inline constexpr size_t kMiB = 1 << 20;
inline constexpr size_t kSpan = 64 * kMiB;

/// An arena that ends with the test.
class Small {
 public:
  explicit Small(uint64_t keep = Limits::kByUse, uint64_t span = kSpan) {
    arena.set_limits({span, keep});
  }
  ~Small() { arena.unmake(); }
  Small(const Small&) = delete;
  Small& operator=(const Small&) = delete;

  char* allocate(size_t bytes, size_t alignment = 1) {
    return static_cast<char*>(arena.allocate(bytes, alignment));
  }
  char* allocate_filled(size_t bytes, char with = 1) {
    char* const p = allocate(bytes);
    REQUIRE(p != nullptr);
    std::memset(p, with, bytes);
    return p;
  }
  sirtaki_heap_figures figures() {
    sirtaki_heap_figures found;
    arena.figures(&found);
    return found;
  }

  Arena arena;
};

inline bool is_all(const char* p, size_t bytes, char value) {
  return std::all_of(p, p + bytes, [value](char each) { return each == value; });
}

}  // namespace sirtaki::heap
