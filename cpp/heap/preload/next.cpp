#include "heap/preload/next.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace sirtaki::heap {
namespace {

// What the dynamic linker asks for while it looks for the functions: it may allocate.
alignas(64) constinit std::array<char, 16 << 10> early{};
constinit std::atomic<size_t> early_used{0};

void* early_memory(size_t bytes) {
  constexpr size_t kAlignment = 64;
  if (bytes > early.size()) return nullptr;
  const size_t room = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t at = early_used.fetch_add(room);
  return at + room <= early.size() ? early.data() + at : nullptr;
}

void* early_malloc(size_t bytes) { return early_memory(bytes); }

void* early_calloc(size_t count, size_t bytes) {
  if (bytes != 0 && count > early.size() / bytes) return nullptr;
  return early_memory(count * bytes);
}

void* early_realloc(void* p, size_t bytes) {
  void* const moved = early_memory(bytes);
  if (moved == nullptr || p == nullptr) return moved;
  const auto room = static_cast<size_t>(early.data() + early.size() - static_cast<char*>(p));
  std::memcpy(moved, p, std::min(bytes, room));
  return moved;
}

void* early_aligned(size_t alignment, size_t bytes) {
  return alignment <= 64 ? early_memory(bytes) : nullptr;
}

int early_posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = early_aligned(alignment, bytes);
  return *out == nullptr ? 12 /* ENOMEM */ : 0;
}

constexpr Next kEarly{early_malloc,
                      early_calloc,
                      early_realloc,
                      early_aligned,
                      early_aligned,
                      early_posix_memalign,
                      [](void*) { return size_t{0}; },
                      [](void*) {}};

constinit Next found{};
// The early ones until all are found: by then there is one thread, the linker's.
constinit std::atomic<const Next*> current{nullptr};

template <typename Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

const Next& next() {
  const Next* known = current.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  current.store(&kEarly, std::memory_order_relaxed);
  find(found.malloc, "malloc");
  find(found.calloc, "calloc");
  find(found.realloc, "realloc");
  find(found.memalign, "memalign");
  find(found.aligned_alloc, "aligned_alloc");
  find(found.posix_memalign, "posix_memalign");
  find(found.malloc_usable_size, "malloc_usable_size");
  find(found.free, "free");
  current.store(&found, std::memory_order_release);
  return found;
}

bool is_early(const void* p) {
  return reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(early.data()) < early.size();
}

}  // namespace sirtaki::heap
