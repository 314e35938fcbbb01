#pragma once

#include <cstddef>

namespace sirtaki::heap {

/// The functions of malloc's family that programs would have without us, of those that are ours.
struct Next {
  void* (*realloc)(void*, size_t);
  void* (*memalign)(size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  size_t (*malloc_usable_size)(void*);
  void (*free)(void*);
};

/// Finds them by its first call.
const Next& next();

}  // namespace sirtaki::heap
