#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace sirtaki {

/// One end of a byte stream through shared memory, with one writer and one reader. Each keeps its
/// own position to itself and shows a copy: the other process can overwrite those, so positions
/// that cannot be are an error.
class PairRing {
 public:
  /// In shared memory, before the bytes; zeros are an empty ring.
  struct Positions {
    alignas(128) std::atomic<uint32_t> head;  ///< of the reader
    alignas(128) std::atomic<uint32_t> tail;  ///< of the writer
    std::atomic<uint32_t> blocked;            ///< the writer waits for room
  };

  /// Which end this is.
  enum class End { kReads, kWrites };

  /// Goes on where the last such end of the ring stopped.
  PairRing(Positions* positions, std::byte* data, uint32_t bytes, End end)
      : positions_(positions),
        data_(data),
        bytes_(bytes),
        head_(positions->head.load(std::memory_order_acquire)),
        tail_(positions->tail.load(std::memory_order_acquire)) {
    // What the other end shows is not believed before it is looked at.
    if (end == End::kReads) {
      tail_ = head_;
    } else {
      head_ = tail_ - bytes_;
    }
  }

  uint32_t bytes() const { return bytes_; }

  // ---- The writer ----

  /// Puts as much as fits behind what is there, unseen by the reader until `publish`.
  size_t put(const std::byte* from, size_t bytes) {
    if (bytes > bytes_ - (tail_ - head_)) {
      head_ = positions_->head.load(std::memory_order_acquire);
      if (tail_ - head_ > bytes_) overwritten();
    }
    const auto count = static_cast<uint32_t>(std::min<size_t>(bytes_ - (tail_ - head_), bytes));
    if (count == 0) return 0;
    const uint32_t at = tail_ & (bytes_ - 1);
    const uint32_t first = std::min(count, bytes_ - at);
    std::memcpy(data_ + at, from, first);
    std::memcpy(data_, from + first, count - first);
    tail_ += count;
    return count;
  }
  void publish() { positions_->tail.store(tail_, std::memory_order_release); }
  /// The reader, once it has been told of this, is to tell when there is room.
  void block() { positions_->blocked.store(1, std::memory_order_relaxed); }

  // ---- The reader ----

  /// Takes as much as is there; the writer does not see that before `release`.
  size_t take(std::byte* to, size_t bytes) {
    if (bytes > tail_ - head_) {
      tail_ = positions_->tail.load(std::memory_order_acquire);
      if (tail_ - head_ > bytes_) overwritten();
    }
    const auto count = static_cast<uint32_t>(std::min<size_t>(tail_ - head_, bytes));
    const uint32_t at = head_ & (bytes_ - 1);
    const uint32_t first = std::min(count, bytes_ - at);
    if (to != nullptr && count > 0) {
      std::memcpy(to, data_ + at, first);
      std::memcpy(to + first, data_, count - first);
    }
    head_ += count;
    return count;
  }
  /// True if the writer is to be told that there is room.
  bool release() {
    positions_->head.store(head_, std::memory_order_release);
    return positions_->blocked.load(std::memory_order_relaxed) != 0 &&
           positions_->blocked.exchange(0) != 0;
  }

 private:
  [[noreturn]] static void overwritten() {
    throw Error(ErrorCode::kInternal, "a ring in shared memory was overwritten by another process");
  }

  Positions* positions_;
  std::byte* data_;
  uint32_t bytes_;
  uint32_t head_;
  uint32_t tail_;
};

}  // namespace sirtaki
