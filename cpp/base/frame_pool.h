#pragma once

#include <array>
#include <cstddef>
#include <new>

namespace sirtaki {

/// Memory of coroutine frames and of what lives as briefly: each thread keeps a little for the next
/// ones, so that an operation of a few bytes does not pay for allocations.
class FramePool {
 public:
  static void* take(size_t bytes) {
    if (bytes > kLargest) return ::operator new(bytes);
    Shelf& shelf = mine()[index_of(bytes)];
    if (shelf.count == 0) return ::operator new((index_of(bytes) + 1) * kStep);
    return shelf.kept[--shelf.count];
  }

  static void give(void* memory, size_t bytes) noexcept {
    if (bytes <= kLargest) {
      Shelf& shelf = mine()[index_of(bytes)];
      if (shelf.count < kKept) {
        shelf.kept[shelf.count++] = memory;
        return;
      }
    }
    ::operator delete(memory);
  }

 private:
  static constexpr size_t kStep = 128;
  static constexpr size_t kLargest = 2048;
  static constexpr size_t kKept = 8;

  struct Shelf {
    void* kept[kKept];
    size_t count = 0;
    ~Shelf() {
      while (count > 0) ::operator delete(kept[--count]);
    }
  };
  using Shelves = std::array<Shelf, kLargest / kStep>;

  static size_t index_of(size_t bytes) { return (bytes - 1) / kStep; }
  static Shelves& mine() {
    static thread_local Shelves shelves;
    return shelves;
  }
};

/// Gives a class its memory from the pool.
struct Pooled {
  static void* operator new(size_t bytes) { return FramePool::take(bytes); }
  static void operator delete(void* memory, size_t bytes) noexcept {
    FramePool::give(memory, bytes);
  }
};

}  // namespace sirtaki
