#include "transport/heaps/own_heap.h"

#include <dlfcn.h>

#include <atomic>

namespace sirtaki {
namespace {

std::atomic<const sirtaki_heap*> given{nullptr};

const sirtaki_heap* preloaded() {
  using Table = const sirtaki_heap* (*)();
  const auto table = reinterpret_cast<Table>(dlsym(RTLD_DEFAULT, "sirtaki_heap_v1"));
  const sirtaki_heap* heap = table == nullptr ? nullptr : table();
  return heap != nullptr && heap->version == SIRTAKI_HEAP_VERSION ? heap : nullptr;
}

const sirtaki_heap* preloaded_once() {
  static const sirtaki_heap* const found = preloaded();
  return found;
}

}  // namespace

const sirtaki_heap* own_heap() {
  const sirtaki_heap* heap = given.load(std::memory_order_acquire);
  return heap != nullptr ? heap : preloaded_once();
}

void use_heap(const sirtaki_heap* heap) { given.store(heap, std::memory_order_release); }

HeapLine describe_heap() {
  const sirtaki_heap* const heap = own_heap();
  if (heap == nullptr) return {"shared heap: none", false, false};
  void* base = nullptr;
  uint64_t span = 0;
  int fd = -1;
  const bool exists = heap->arena(&base, &span, &fd) == 0;
  const std::string why = heap->reason();
  std::string text = "shared heap: ";
  text += exists ? "an arena of " + std::to_string(span >> 20) + " MiB" : "none";
  if (!why.empty()) text += "; " + why;
  const bool wanted = heap == preloaded_once();
  return {text, wanted, wanted && !why.empty()};
}

}  // namespace sirtaki
