#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sirtaki {

/// A byte stream through shared memory with one writer and one reader. All-zero memory is an empty
/// ring. Both can be overwritten by the other process: positions that cannot be are an error. The
/// reader may sleep until there is something to read: see Parking.
class ByteRing {
 public:
  static constexpr uint32_t kBytes = 32 << 10;

  /// Writes as much of `data` as fits and returns how much that was.
  size_t write(std::string_view data) {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    const uint32_t free = kBytes - checked(tail - head_.load(std::memory_order_acquire));
    const auto count = static_cast<uint32_t>(std::min<size_t>(free, data.size()));
    const uint32_t first = std::min(count, kBytes - tail % kBytes);
    std::memcpy(data_ + tail % kBytes, data.data(), first);
    std::memcpy(data_, data.data() + first, count - first);
    tail_.store(tail + count);
    return count;
  }

  bool empty() const { return tail_.load() == head_.load(std::memory_order_relaxed); }

  /// Appends everything readable to `out`.
  void read(std::string& out) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    const uint32_t count = checked(tail_.load(std::memory_order_acquire) - head);
    const uint32_t first = std::min(count, kBytes - head % kBytes);
    out.append(data_ + head % kBytes, first);
    out.append(data_, count - first);
    head_.store(head + count, std::memory_order_release);
  }

 private:
  static uint32_t checked(uint32_t used) {
    if (used <= kBytes) return used;
    throw Error(ErrorCode::kInternal, "a ring in shared memory was overwritten by another process");
  }

  alignas(128) std::atomic<uint32_t> head_;
  alignas(128) std::atomic<uint32_t> tail_;
  alignas(128) char data_[kBytes];
};

}  // namespace sirtaki
