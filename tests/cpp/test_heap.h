#pragma once

#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

#include "transport/heaps/own_heap.h"

// A heap for ranks that are threads.
namespace sirtaki::testing {

class TestHeap {
 public:
  static constexpr size_t kSpan = size_t{1} << 30;

  static TestHeap& get() {
    static TestHeap heap;
    return heap;
  }

  OwnHeap* own() { return &heap_; }
  std::byte* allocate(size_t bytes) {
    std::byte* const block = heap_.allocate(bytes);
    if (block == nullptr) throw std::bad_alloc();
    const std::lock_guard lock(mutex_);
    blocks_.push_back(block);
    return block;
  }
  /// Frees all blocks.
  void clear() {
    const std::lock_guard lock(mutex_);
    for (std::byte* block : blocks_) heap_.release(block);
    blocks_.clear();
  }
  bool shares(const std::byte* data, size_t bytes) { return heap_.holds(data, bytes); }

 private:
  OwnHeap heap_{kSpan};
  std::mutex mutex_;
  std::vector<std::byte*> blocks_;
};

}  // namespace sirtaki::testing
