#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "python/bindings.h"
#include "transport/heaps/own_heap.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

std::optional<Bytes> allocate(uint64_t bytes) {
  std::byte* const block = own_heap().allocate(bytes);
  if (block == nullptr) return std::nullopt;
  const nb::capsule owner(block,
                          [](void* p) noexcept { own_heap().release(static_cast<std::byte*>(p)); });
  return Bytes(block, {bytes}, owner);
}

bool holds(uintptr_t address, uint64_t bytes) {
  return own_heap().holds(reinterpret_cast<const std::byte*>(address), bytes);
}

/// Descriptor and size of the heap's file; the heap keeps the descriptor. (-1, 0): there is none.
std::pair<int, uint64_t> memory() {
  const auto file = own_heap().file();
  return file ? std::pair(file->fd, file->bytes) : std::pair(-1, uint64_t{0});
}

}  // namespace

void bind_heap(nb::module_& m) {
  m.def("heap_memory", &memory, "What the other ranks of the host are to have of it.");
  m.def("heap_allocate", &allocate, "bytes"_a,
        "Memory that other ranks can map, freed with the array; None: there is no room.");
  m.def("heap_holds", &holds, "address"_a, "bytes"_a,
        "Whether the bytes lie in one such array, and are still shared.");
}

}  // namespace sirtaki
