// What frameworks allocate tensors with: large aligned blocks are the arena's. All others are the C
// library's, and so is malloc.

#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "heap/preload/process.h"

namespace {

using sirtaki::heap::Arena;
using sirtaki::heap::is_served;
using sirtaki::heap::kDataAlignment;
using sirtaki::heap::kLarge;
using sirtaki::heap::process_arena;

/// The functions of malloc's family that programs would have without us, of those that are ours.
struct Next {
  void* (*realloc)(void*, size_t);
  void* (*memalign)(size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  size_t (*malloc_usable_size)(void*);
  void (*free)(void*);
};

// What the dynamic linker may call while it looks for the functions: what it frees stays.
constexpr Next kNone{[](void*, size_t) -> void* { return nullptr; },
                     [](size_t, size_t) -> void* { return nullptr; },
                     [](size_t, size_t) -> void* { return nullptr; },
                     [](void**, size_t, size_t) { return ENOMEM; },
                     [](void*) { return size_t{0}; },
                     [](void*) {}};

constinit Next found{};
// None until all are found: by then there is one thread, the linker's.
constinit std::atomic<const Next*> current{nullptr};

template <typename Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// Finds them by its first call.
const Next& next() {
  const Next* known = current.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  current.store(&kNone, std::memory_order_relaxed);
  find(found.realloc, "realloc");
  find(found.memalign, "memalign");
  find(found.aligned_alloc, "aligned_alloc");
  find(found.posix_memalign, "posix_memalign");
  find(found.malloc_usable_size, "malloc_usable_size");
  find(found.free, "free");
  current.store(&found, std::memory_order_release);
  return found;
}

/// Null: not the arena's, or it has no room.
void* from_arena(size_t alignment, size_t bytes) {
  const bool is_data = bytes >= kLarge && alignment >= kDataAlignment;
  if (!is_data || !is_served()) return nullptr;
  if (!std::has_single_bit(alignment) || alignment > Arena::kMostAlignment) return nullptr;
  return process_arena().allocate(bytes, alignment);
}

}  // namespace

extern "C" {

// Declared by <malloc.h> and <stdlib.h>, without visibility.
#pragma GCC visibility push(default)

int posix_memalign(void** out, size_t alignment, size_t bytes) noexcept {
  void* const p = from_arena(alignment, bytes);
  if (p == nullptr) return next().posix_memalign(out, alignment, bytes);
  *out = p;
  return 0;
}

void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  void* const p = from_arena(alignment, bytes);
  return p != nullptr ? p : next().aligned_alloc(alignment, bytes);
}

void* memalign(size_t alignment, size_t bytes) noexcept {
  void* const p = from_arena(alignment, bytes);
  return p != nullptr ? p : next().memalign(alignment, bytes);
}

void free(void* p) noexcept {
  if (process_arena().contains(p)) {
    process_arena().release(p);
  } else {
    next().free(p);
  }
}

void* realloc(void* p, size_t bytes) noexcept {
  if (!process_arena().contains(p)) return next().realloc(p, bytes);
  void* const moved = bytes == 0 ? nullptr : malloc(bytes);
  if (moved != nullptr) std::memcpy(moved, p, std::min(process_arena().bytes_of(p), bytes));
  if (moved != nullptr || bytes == 0) free(p);
  return moved;
}

size_t malloc_usable_size(void* p) noexcept {
  return process_arena().contains(p) ? process_arena().bytes_of(p) : next().malloc_usable_size(p);
}

#pragma GCC visibility pop

}  // extern "C"
