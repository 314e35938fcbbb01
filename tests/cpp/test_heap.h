#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <new>

#include "heap/heap.h"

// A shared heap for ranks that are threads: blocks are handed out one behind the other.
namespace sirtaki::testing {

class TestHeap {
 public:
  static constexpr size_t kSpan = size_t{1} << 30;
  /// Ordinary memory right behind the arena.
  static constexpr size_t kBehind = 4 << 20;

  static TestHeap& get() {
    static TestHeap heap;
    return heap;
  }

  std::byte* allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = (bytes + kPage - 1) / kPage * kPage;
    if (used_ + size > kSpan) throw std::bad_alloc();
    std::byte* block = base_ + used_;
    used_ += size;
    blocks_[block] = size;
    return block;
  }
  /// Frees all blocks.
  void clear() {
    const std::lock_guard lock(mutex_);
    used_ = 0;
    blocks_.clear();
    madvise(base_, kSpan, MADV_REMOVE);
  }
  std::byte* end() const { return base_ + kSpan; }
  /// Whether the block at `data` is shared, and never was abandoned.
  bool shares(const std::byte* data, size_t bytes) const {
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(data);
    if (block == blocks_.begin()) return false;
    --block;
    return data + bytes <= block->first + block->second;
  }
  void abandon(const std::byte* data) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(std::prev(blocks_.upper_bound(data)));
  }

  static const sirtaki_heap* table() {
    static const sirtaki_heap kTable = {
        SIRTAKI_HEAP_VERSION,
        [](void** base, uint64_t* span, int* fd) {
          *base = get().base_;
          *span = kSpan;
          *fd = -1;
          return 0;
        },
        [](const void* data, uint64_t bytes) {
          return get().shares(static_cast<const std::byte*>(data), bytes) ? 1 : 0;
        },
        [](const void* data, uint64_t) { get().abandon(static_cast<const std::byte*>(data)); },
        [](uint64_t bytes) -> void* { return get().allocate(bytes); },
        [](void*) {},
        [](sirtaki_heap_figures*) {},
        [] { return ""; }};
    return &kTable;
  }

 private:
  static constexpr size_t kPage = 4096;

  TestHeap() {
    void* memory = mmap(nullptr, kSpan + kBehind, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(memory);
  }

  std::byte* base_ = nullptr;
  size_t used_ = 0;
  mutable std::mutex mutex_;
  std::map<const std::byte*, size_t> blocks_;
};

}  // namespace sirtaki::testing
