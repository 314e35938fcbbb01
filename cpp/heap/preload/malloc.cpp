// malloc's family: large blocks are the arena's, all others those of the C library.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "heap/preload/next.h"
#include "heap/preload/process.h"

namespace {

using sirtaki::heap::Arena;
using sirtaki::heap::is_early;
using sirtaki::heap::kLarge;
using sirtaki::heap::next;
using sirtaki::heap::process_arena;
using sirtaki::heap::serves_malloc;

/// Null: not the arena's, or it has no room.
void* from_arena(size_t alignment, size_t bytes, bool* is_zero = nullptr) {
  if (bytes < kLarge || !serves_malloc()) return nullptr;
  if (!std::has_single_bit(alignment) || alignment > Arena::kMostAlignment) return nullptr;
  return process_arena().allocate(bytes, alignment, is_zero);
}

/// Moves a block, of which `used` bytes are somebody's, to where a block of that size belongs.
void* move(void* p, size_t used, size_t bytes) {
  void* const moved = malloc(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, p, std::min(used, bytes));
  free(p);
  return moved;
}

size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

extern "C" {

// Declared by <malloc.h> and <stdlib.h>, without visibility.
#pragma GCC visibility push(default)

void* malloc(size_t bytes) noexcept {
  void* const p = from_arena(Arena::kPlain, bytes);
  return p != nullptr ? p : next().malloc(bytes);
}

void free(void* p) noexcept {
  if (process_arena().contains(p)) {
    process_arena().release(p);
  } else if (!is_early(p)) {
    next().free(p);
  }
}

void* calloc(size_t count, size_t each) noexcept {
  size_t bytes;
  bool is_zero = false;
  void* const p = __builtin_mul_overflow(count, each, &bytes)
                      ? nullptr
                      : from_arena(Arena::kPlain, bytes, &is_zero);
  if (p == nullptr) return next().calloc(count, each);
  return is_zero ? p : std::memset(p, 0, bytes);
}

void* realloc(void* p, size_t bytes) noexcept {
  if (process_arena().contains(p)) {
    if (bytes == 0) {
      free(p);
      return nullptr;
    }
    if (bytes >= kLarge && process_arena().resize(p, bytes)) return p;
    return move(p, process_arena().bytes_of(p), bytes);
  }
  if (is_early(p)) {
    void* const moved = next().malloc(bytes);
    return moved == nullptr ? nullptr : std::memcpy(moved, p, bytes);
  }
  if (p != nullptr && bytes >= kLarge && serves_malloc()) {
    const size_t used = next().malloc_usable_size(p);
    void* const moved = used < kLarge ? from_arena(Arena::kPlain, bytes) : nullptr;
    if (moved != nullptr) {
      std::memcpy(moved, p, std::min(used, bytes));
      next().free(p);
      return moved;
    }
  }
  return p == nullptr ? malloc(bytes) : next().realloc(p, bytes);
}

void* reallocarray(void* p, size_t count, size_t each) noexcept {
  size_t bytes;
  if (__builtin_mul_overflow(count, each, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(p, bytes);
}

int posix_memalign(void** out, size_t alignment, size_t bytes) noexcept {
  void* const p = alignment < sizeof(void*) ? nullptr : from_arena(alignment, bytes);
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

void* valloc(size_t bytes) noexcept { return memalign(page(), bytes); }

void* pvalloc(size_t bytes) noexcept {
  const size_t last = page() - 1;
  if (bytes > SIZE_MAX - last) {
    errno = ENOMEM;
    return nullptr;
  }
  return memalign(page(), (bytes + last) & ~last);
}

size_t malloc_usable_size(void* p) noexcept {
  if (process_arena().contains(p)) return process_arena().bytes_of(p);
  return is_early(p) ? 0 : next().malloc_usable_size(p);
}

#pragma GCC visibility pop

}  // extern "C"
