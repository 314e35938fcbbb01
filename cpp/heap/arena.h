#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "heap/forks.h"
#include "heap/heap.h"
#include "heap/runs.h"

namespace sirtaki::heap {

/// A mutex of the C library alone: under every program's free there is no room for another one's
/// C++ library.
class Mutex {
 public:
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

/// Holds a mutex for a scope.
using Lock = std::lock_guard<Mutex>;

/// What a user may set.
struct Limits {
  static constexpr uint64_t kByUse = UINT64_MAX;

  uint64_t span = 0;       ///< bytes of the arena; 0: by the memory of the machine
  uint64_t keep = kByUse;  ///< free bytes that are kept; kByUse: by the most that was live at once
};

/// Large blocks in a file in memory that other processes can map. Made by the first use, never
/// unmade. Every function may be called from any thread; none of them allocates or throws.
class Arena {
 public:
  /// Blocks begin at multiples of this, which no system's pages are larger than.
  static constexpr size_t kGranule = 64 << 10;
  /// The largest alignment of a block, and the arena's own: that of huge pages.
  static constexpr size_t kMostAlignment = 2 << 20;

  constexpr Arena() = default;
  /// Tests make several; that of a process stays until its end, like all memory.
  void unmake();

  /// Before the first use.
  void set_limits(const Limits& limits) { limits_ = limits; }

  /// False: there is none, for the reason that `why_none` gives.
  bool make();
  const char* why_none() const { return why_none_.data(); }

  /// bytes > 0. alignment: a power of two, at most kMostAlignment. Null: there is no room.
  void* allocate(size_t bytes, size_t alignment);
  /// p: a block or null; anything else is left alone.
  void release(void* p);
  size_t bytes_of(const void* p);
  /// Whether an address is in the arena: needs no lock.
  bool contains(const void* p) const {
    // Without an arena the span is zero; it is set last.
    const size_t span = span_.load(std::memory_order_acquire);
    return reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(base()) < span;
  }

  /// See sirtaki_heap.
  int arena(void** base, uint64_t* span, int* fd);
  bool holds(const void* p, uint64_t bytes);
  void abandon(const void* p, uint64_t bytes);
  void figures(sirtaki_heap_figures* out);

  /// What a fork inherits is kept for it, and what it writes there is its own.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  static constexpr uint32_t kReturned = kMostAlignment / kGranule;

  char* base() const { return base_.load(std::memory_order_relaxed); }
  char* at(uint32_t granule) const { return base() + size_t{granule} * kGranule; }
  uint32_t granule_of(const void* p) const {
    return static_cast<uint32_t>((static_cast<const char*>(p) - base()) / kGranule);
  }
  bool fail(const char* what);
  bool map(uint64_t span);
  bool serves() const { return span_.load(std::memory_order_acquire) > 0 && !forked_; }
  const Run* block_at(const void* p) const;
  void count_live(int64_t granules);
  uint64_t too_much() const;
  void return_dirty(bool all);
  bool is_inherited(const Run& block);
  void give_held();
  void make_private();
  bool owns_descriptor() const;

  Mutex mutex_;
  Limits limits_;
  std::atomic<char*> base_{nullptr};
  std::atomic<size_t> span_{0};
  int fd_ = -1;
  uint64_t file_ = 0;  ///< the number of what `fd_` was opened for
  void* records_ = nullptr;
  Runs runs_;
  bool tried_ = false;
  bool forked_ = false;
  Forks forks_;
  uint64_t live_ = 0, most_live_ = 0, held_ = 0, returned_ = 0;  ///< granules
  uint64_t blocks_ = 0, fallbacks_ = 0;
  std::array<char, 256> why_none_{};
};

}  // namespace sirtaki::heap
