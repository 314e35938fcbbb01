#include "transport/own_heap.h"

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

}  // namespace

const sirtaki_heap* own_heap() {
  static const sirtaki_heap* const found = preloaded();
  const sirtaki_heap* heap = given.load(std::memory_order_acquire);
  return heap != nullptr ? heap : found;
}

void use_heap(const sirtaki_heap* heap) { given.store(heap, std::memory_order_release); }

}  // namespace sirtaki
