#include "heap/preload/next.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

namespace sirtaki::heap {
namespace {

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

}  // namespace

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

}  // namespace sirtaki::heap
