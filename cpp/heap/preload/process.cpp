#include "heap/preload/process.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "heap/heap.h"

namespace sirtaki::heap {
namespace {

constinit Arena arena;
constinit bool served = false;
constinit std::array<char, 512> why{};

/// What the object that has an address is.
Dl_info object_of(const void* address) {
  Dl_info info{};
  dladdr(address, &info);
  return info;
}

const Dl_info own_object() { return object_of(&why); }

/// What the whole process knows by a name; RTLD_DEFAULT would ask ourselves too.
void* global(const char* name) {
  void* const process = dlopen(nullptr, RTLD_LAZY);
  return dlsym(process, name);
}

bool is_preloaded() { return global("sirtaki_heap_v1") != nullptr; }

/// Another allocator wins: its users chose it.
void decide() {
  if (!is_preloaded()) {
    std::snprintf(why.data(), why.size(), "it is not preloaded");
    return;
  }
  const void* const used = global("malloc");
  served = object_of(used).dli_fbase == object_of(global("getpid")).dli_fbase;
  if (!served) {
    std::snprintf(why.data(), why.size(), "malloc is that of %s", object_of(used).dli_fname);
  }
}

/// A number of bytes; without one, or with nonsense, what stands there stays.
void read_bytes(const char* name, uint64_t& value) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return;
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(text, &end, 10);
  if (*end != '\0' || errno != 0 || *text < '0' || *text > '9') {
    std::snprintf(why.data(), why.size(), "%s='%.40s' is no number of bytes, and the default holds",
                  name, text);
    return;
  }
  value = number;
}

bool is_own_entry(const char* entry, size_t length) {
  const char* const path = own_object().dli_fname;
  const char* const slash = std::strrchr(path, '/');
  const char* const name = slash == nullptr ? path : slash + 1;
  const size_t bytes = std::strlen(name);
  if (length < bytes || std::memcmp(entry + length - bytes, name, bytes) != 0) return false;
  return length == bytes || entry[length - bytes - 1] == '/';
}

/// Takes our entry, and no other, out of LD_PRELOAD: what a rank executes is no rank.
void leave_preload() {
  const char* const list = std::getenv("LD_PRELOAD");
  if (list == nullptr) return;
  const size_t all = std::strlen(list) + 1;
  auto* const kept = static_cast<char*>(std::malloc(all));
  if (kept == nullptr) return;
  size_t used = 0;
  for (const char* at = list; *at != '\0';) {
    const size_t length = std::strcspn(at, ": ");
    if (length > 0 && !is_own_entry(at, length)) {
      if (used > 0) kept[used++] = ':';
      std::memcpy(kept + used, at, length);
      used += length;
    }
    at += length;
    if (*at != '\0') ++at;
  }
  kept[used] = '\0';
  if (used == 0) {
    unsetenv("LD_PRELOAD");
  } else {
    setenv("LD_PRELOAD", kept, 1);
  }
  std::free(kept);
}

/// A rank is a Python process; what comes before it, as a shell or numactl, hands us on to it.
bool is_python() { return global("Py_BytesMain") != nullptr; }

__attribute__((constructor)) void start() {
  decide();
  Limits limits;
  read_bytes("SIRTAKI_HEAP_SPAN", limits.span);
  read_bytes("SIRTAKI_HEAP_KEEP", limits.keep);
  arena.set_limits(limits);
  pthread_atfork([] { arena.before_fork(); }, [] { arena.after_fork_in_parent(); },
                 [] { arena.after_fork_in_child(); });
  if (is_preloaded() && is_python()) leave_preload();
}

/// See sirtaki_heap.
const char* reason() { return *arena.why_none() != '\0' ? arena.why_none() : why.data(); }

constexpr sirtaki_heap kTable{
    SIRTAKI_HEAP_VERSION,
    [](void** base, uint64_t* span, int* fd) { return arena.arena(base, span, fd); },
    [](const void* p, uint64_t bytes) { return arena.holds(p, bytes) ? 1 : 0; },
    [](const void* p, uint64_t bytes) { arena.abandon(p, bytes); },
    [](uint64_t bytes) -> void* {
      return bytes == 0 ? nullptr : arena.allocate(bytes, kDataAlignment);
    },
    [](void* p) { arena.release(p); },
    [](sirtaki_heap_figures* out) { arena.figures(out); },
    [] { return reason(); },
};

}  // namespace

Arena& process_arena() { return arena; }

bool is_served() { return served; }

}  // namespace sirtaki::heap

extern "C" __attribute__((visibility("default"))) const sirtaki_heap* sirtaki_heap_v1(void) {
  return &sirtaki::heap::kTable;
}
