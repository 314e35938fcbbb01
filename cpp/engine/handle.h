#pragma once

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/futex.h"
#include "engine/request.h"
#include "pairs/message.h"

namespace sirtaki {

/// A result whose size was known only after the ranks had agreed.
class Buffer {
 public:
  /// Memory of the engine's own.
  Buffer(Shape shape, size_t bytes) : shape_(std::move(shape)), bytes_(bytes) {
    // Zero bytes still need a distinct, aligned address.
    const size_t rounded = (bytes / kAlign + 1) * kAlign;
    own_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlign, rounded)));
    if (own_ == nullptr) throw std::bad_alloc();
    data_ = own_.get();
  }
  /// Memory of the caller's.
  Buffer(Shape shape, size_t bytes, void* data)
      : shape_(std::move(shape)), bytes_(bytes), data_(static_cast<std::byte*>(data)) {}

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  const Shape& shape() const { return shape_; }

 private:
  static constexpr size_t kAlign = 64;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };

  Shape shape_;
  size_t bytes_;
  std::unique_ptr<std::byte, Free> own_;
  std::byte* data_;
};

/// Gives memory for result number `tensor`, which the engine then fills; null: there is none.
/// Called by the thread that makes progress: it must not use the engine.
using Allocate = std::function<void*(size_t tensor, const Shape& shape, size_t bytes)>;

/// One submitted operation: what the caller waits for and gets.
class Handle {
 public:
  /// Called once, when the handle is done, by whichever thread finds it so; it holds nothing of the
  /// engine, which may be used.
  using OnDone = std::function<void(const Handle&)>;

  explicit Handle(OnDone on_done = nullptr) : on_done_(std::move(on_done)) {}

  bool done() const { return (seen() & kDone) != 0; }

  /// Changes when the handle is done, and with every nudge.
  uint32_t seen() const { return state_.load(std::memory_order_acquire); }
  /// Sleeps until that is no longer what was seen, at most `timeout_ns` (negative: no limit).
  void sleep(uint32_t seen, int64_t timeout_ns = -1) {
    if (!state_.compare_exchange_strong(seen, seen | kAsleep)) return;
    if ((seen & kDone) == 0) futex_wait(state_, seen | kAsleep, timeout_ns);
  }
  /// Lets who sleeps look around.
  void nudge() {
    state_.fetch_add(kNudge);
    futex_wake(state_);
  }

  /// The first one counts: true.
  bool complete(const std::optional<Error>& error = std::nullopt) {
    if (done()) return false;
    if (error) error_.emplace(*error);
    const uint32_t before = state_.fetch_or(kDone, std::memory_order_acq_rel);
    if ((before & kAsleep) != 0) futex_wake(state_);
    return true;
  }

  bool calls_back() const { return on_done_ != nullptr; }
  void call_back() const { on_done_(*this); }

  /// Set once done.
  const std::optional<Error>& error() const { return error_; }

  std::vector<std::shared_ptr<Buffer>> outputs;  ///< of kinds whose result size is negotiated
  std::vector<int64_t> received_splits;          ///< alltoall: rows from each member
  Message message;                               ///< of a receive
  int32_t value = -1;                            ///< join: the last rank; add_process_set: its id

 private:
  static constexpr uint32_t kDone = 1;
  static constexpr uint32_t kAsleep = 2;  ///< somebody sleeps, or did
  static constexpr uint32_t kNudge = 4;

  const OnDone on_done_;
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
  Allocate allocate;
  std::string no_memory;  ///< what `allocate` failed with; empty: it did not
  std::shared_ptr<Handle> handle;
};

}  // namespace sirtaki
