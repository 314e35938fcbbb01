#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/futex.h"
#include "engine/request.h"

namespace sirtaki {

/// A tensor the engine allocated because its size was known only after the ranks had agreed.
class Buffer {
 public:
  Buffer(Shape shape, size_t bytes) : shape_(std::move(shape)), bytes_(bytes) {
    // Zero bytes still need a distinct, aligned address.
    const size_t rounded = (bytes / kAlign + 1) * kAlign;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlign, rounded)));
    if (data_ == nullptr) throw std::bad_alloc();
  }

  std::byte* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }
  const Shape& shape() const { return shape_; }

 private:
  static constexpr size_t kAlign = 64;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };

  Shape shape_;
  size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

/// One submitted operation: what the caller waits for and gets.
class Handle {
 public:
  bool done() const { return state_.load(std::memory_order_acquire) != 0; }

  /// Sleeps until done, at most `timeout_ns` (negative: no limit).
  void sleep(int64_t timeout_ns = -1) {
    if (!done()) futex_wait(state_, 0, timeout_ns);
  }

  /// The first one counts.
  void complete(const std::optional<Error>& error = std::nullopt) {
    if (done()) return;
    if (error) error_.emplace(*error);
    state_.store(1, std::memory_order_release);
    futex_wake(state_);
  }

  /// Set once done.
  const std::optional<Error>& error() const { return error_; }

  std::vector<std::shared_ptr<Buffer>> outputs;  ///< of kinds whose result size is negotiated
  std::vector<int64_t> received_splits;          ///< alltoall: rows from each member
  int32_t value = -1;                            ///< join: the last rank; add_process_set: its id

 private:
  std::atomic<uint32_t> state_{0};
  std::optional<Error> error_;
};

/// A request and the local memory it is about.
struct Entry {
  Request request;
  std::string encoded;
  uint64_t ordinal = 0;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::shared_ptr<Handle> handle;
};

}  // namespace sirtaki
