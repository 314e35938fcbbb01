#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "python/bindings.h"
#include "transport/heaps/own_heap.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

/// For good: blocks of it may outlive everything.
void load(const std::string& path) {
  if (own_heap() != nullptr) return;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  using Table = const sirtaki_heap* (*)();
  const auto table =
      library == nullptr ? nullptr : reinterpret_cast<Table>(dlsym(library, "sirtaki_heap_v1"));
  if (table == nullptr) {
    throw invalid("the shared heap cannot be loaded: " + std::string(dlerror()));
  }
  use_heap(table());
}

std::optional<Bytes> allocate(uint64_t bytes) {
  const sirtaki_heap* const heap = own_heap();
  void* const p = heap == nullptr ? nullptr : heap->allocate(bytes);
  if (p == nullptr) return std::nullopt;
  const nb::capsule owner(p, [](void* block) noexcept { own_heap()->release(block); });
  return Bytes(p, {bytes}, owner);
}

bool holds(uintptr_t address, uint64_t bytes) {
  const sirtaki_heap* const heap = own_heap();
  return heap != nullptr && heap->holds(reinterpret_cast<const void*>(address), bytes) != 0;
}

std::map<std::string, uint64_t> figures() {
  const sirtaki_heap* const heap = own_heap();
  if (heap == nullptr) return {};
  sirtaki_heap_figures found{};
  heap->figures(&found);
  return {{"span", found.span},
          {"live_bytes", found.live_bytes},
          {"kept_bytes", found.kept_bytes},
          {"held_bytes", found.held_bytes},
          {"returned_bytes", found.returned_bytes},
          {"live_allocations", found.live_allocations},
          {"fallbacks", found.fallbacks},
          {"forked", found.forked},
          {"huge_pages", found.huge_pages}};
}

/// Descriptor and bytes of the heap's memory; the descriptor stays the heap's. (-1, 0): there is
/// none.
std::pair<int, uint64_t> memory() {
  const sirtaki_heap* heap = own_heap();
  void* base = nullptr;
  uint64_t bytes = 0;
  int fd = -1;
  if (heap == nullptr || heap->arena(&base, &bytes, &fd) != 0) return {-1, 0};
  return {fd, bytes};
}

}  // namespace

void bind_heap(nb::module_& m) {
  m.def("load_heap", &load, "path"_a, "Loads the shared heap unless this process has one.");
  m.def("heap_line", [] { return describe_heap().text; }, "What the log says of the shared heap.");
  m.def("heap_memory", &memory, "What the other ranks of the host are to have of it.");
  m.def("heap_figures", &figures, "What the shared heap holds; empty: there is none.");
  m.def("heap_allocate", &allocate, "bytes"_a,
        "A block of the shared heap, freed with the array; None: there is no room.");
  m.def("heap_holds", &holds, "address"_a, "bytes"_a,
        "Whether the bytes lie in one live block of the shared heap.");
}

}  // namespace sirtaki
