#include "heap/heap.h"
#include "heap/preload/process.h"

namespace {

using sirtaki::heap::kDataAlignment;
using sirtaki::heap::process_arena;

constexpr sirtaki_heap kTable{
    SIRTAKI_HEAP_VERSION,
    [](void** base, uint64_t* span, int* fd) { return process_arena().arena(base, span, fd); },
    [](const void* p, uint64_t bytes) { return process_arena().holds(p, bytes) ? 1 : 0; },
    [](const void* p, uint64_t bytes) { process_arena().abandon(p, bytes); },
    [](uint64_t bytes) -> void* {
      return bytes == 0 ? nullptr : process_arena().allocate(bytes, kDataAlignment);
    },
    [](void* p) { process_arena().release(p); },
    [](sirtaki_heap_figures* out) { process_arena().figures(out); },
    [] { return sirtaki::heap::reason(); },
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const sirtaki_heap* sirtaki_heap_v1(void) {
  return &kTable;
}
