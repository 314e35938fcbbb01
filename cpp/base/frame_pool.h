#pragma once

#include <array>
#include <cstddef>
#include <new>

namespace sirtaki {

/// Memory for coroutine frames and other short-lived objects. It keeps a few blocks for reuse, so
/// that an operation of a few bytes does not pay for allocations. One thread at a time uses it, and
/// it must outlive the blocks that it gave out.
class FramePool {
 public:
  FramePool() = default;
  ~FramePool() {
    for (Shelf& shelf : shelves_) {
      while (shelf.count > 0) ::operator delete(shelf.kept[--shelf.count]);
    }
  }
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  /// Allocates from `pool`, or from the heap if `pool` is null.
  static void* take(size_t bytes, FramePool* pool) {
    const size_t index = (bytes + sizeof(Header) - 1) / kStep;
    if (pool == nullptr || index >= kSizes) {
      return with_header(::operator new(bytes + sizeof(Header)), {nullptr, 0});
    }
    Shelf& shelf = pool->shelves_[index];
    void* memory =
        shelf.count > 0 ? shelf.kept[--shelf.count] : ::operator new((index + 1) * kStep);
    return with_header(memory, {pool, index});
  }

  static void give(void* memory) noexcept {
    auto* header = static_cast<Header*>(memory) - 1;
    if (header->pool != nullptr) {
      Shelf& shelf = header->pool->shelves_[header->index];
      if (shelf.count < kKept) {
        shelf.kept[shelf.count++] = header;
        return;
      }
    }
    ::operator delete(header);
  }

 private:
  static constexpr size_t kStep = 128;
  static constexpr size_t kSizes = 8;
  static constexpr size_t kKept = 8;

  struct alignas(std::max_align_t) Header {
    FramePool* pool;
    size_t index;
  };
  struct Shelf {
    std::array<void*, kKept> kept;
    size_t count = 0;
  };

  static void* with_header(void* memory, Header header) { return new (memory) Header(header) + 1; }

  std::array<Shelf, kSizes> shelves_{};
};

}  // namespace sirtaki
