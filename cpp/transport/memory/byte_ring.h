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

enum class RingEnd { kReads, kWrites };

/// One end of a byte stream through shared memory, with one writer and one reader. Each end keeps
/// its own position private and publishes a copy: the other process can overwrite it, so an
/// impossible position is an error and never kept. The reader may sleep until there is data to
/// read: see Parking.
class ByteRing {
 public:
  /// In shared memory, before the bytes; all zeros is an empty ring.
  struct Positions {
    alignas(128) std::atomic<uint32_t> head;  ///< of the reader
    alignas(128) std::atomic<uint32_t> tail;  ///< of the writer
    std::atomic<uint32_t> blocked;            ///< the writer waits for room
  };

  /// Continues where the last such end of the ring stopped. `bytes`: the size, a power of two, of
  /// the data that follows the positions.
  ByteRing(Positions& positions, uint32_t bytes, RingEnd end)
      : positions_(positions),
        data_(reinterpret_cast<char*>(&positions + 1)),
        bytes_(bytes),
        head_((end == RingEnd::kReads ? positions.head : positions.tail)
                  .load(std::memory_order_acquire)),
        tail_(head_) {
    // The other end's position is read when it is needed.
    if (end == RingEnd::kWrites) head_ -= bytes_;
  }

  uint32_t bytes() const { return bytes_; }
  Positions& positions() const { return positions_; }

  // ---- The writer ----

  /// Appends as much as fits; the reader does not see it until `publish`.
  size_t put(const void* from, size_t bytes) {
    if (bytes > bytes_ - (tail_ - head_)) {
      const uint32_t head = positions_.head.load(std::memory_order_acquire);
      if (tail_ - head > bytes_) overwritten();
      head_ = head;
    }
    const auto count = static_cast<uint32_t>(std::min<size_t>(bytes_ - (tail_ - head_), bytes));
    if (count == 0) return 0;
    const uint32_t at = tail_ & (bytes_ - 1);
    const uint32_t first = std::min(count, bytes_ - at);
    std::memcpy(data_ + at, from, first);
    if (count > first) std::memcpy(data_, static_cast<const char*>(from) + first, count - first);
    tail_ += count;
    return count;
  }
  void publish() { positions_.tail.store(tail_); }
  /// Puts and publishes; returns how much of `data` fitted.
  size_t write(std::string_view data) {
    const size_t count = put(data.data(), data.size());
    publish();
    return count;
  }
  /// Asks the reader, once it is notified of this, to notify the writer when there is room.
  void block() { positions_.blocked.store(1, std::memory_order_relaxed); }

  // ---- The reader ----

  bool empty() const { return positions_.tail.load() == head_; }

  /// Takes as much as there is; the writer does not see that until `release`.
  size_t take(std::byte* to, size_t bytes) {
    if (bytes > tail_ - head_) look();
    const auto count = static_cast<uint32_t>(std::min<size_t>(tail_ - head_, bytes));
    const uint32_t at = head_ & (bytes_ - 1);
    const uint32_t first = std::min(count, bytes_ - at);
    if (to != nullptr && count > 0) {
      std::memcpy(to, data_ + at, first);
      if (count > first) std::memcpy(to + first, data_, count - first);
    }
    head_ += count;
    return count;
  }
  /// True if the writer must be notified that there is room.
  bool release() {
    positions_.head.store(head_, std::memory_order_release);
    return positions_.blocked.load(std::memory_order_relaxed) != 0 &&
           positions_.blocked.exchange(0) != 0;
  }
  /// Takes and releases: appends all there is to `out`; the writer must not wait for room.
  void read(std::string& out) {
    look();
    const uint32_t at = head_ & (bytes_ - 1);
    const uint32_t count = tail_ - head_;
    const uint32_t first = std::min(count, bytes_ - at);
    out.append(data_ + at, first);
    if (count > first) out.append(data_, count - first);
    head_ = tail_;
    positions_.head.store(head_, std::memory_order_release);
  }

 private:
  void look() {
    const uint32_t tail = positions_.tail.load(std::memory_order_acquire);
    if (tail - head_ > bytes_) overwritten();
    tail_ = tail;
  }
  [[noreturn]] static void overwritten() {
    throw Error(ErrorCode::kInternal, "a ring in shared memory was overwritten by another process");
  }

  Positions& positions_;
  char* data_;
  uint32_t bytes_;
  uint32_t head_;
  uint32_t tail_;
};

}  // namespace sirtaki
