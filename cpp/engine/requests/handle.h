#pragma once

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/parking.h"
#include "engine/requests/request.h"
#include "pairs/message.h"
#include "transport/memory/flight_record.h"

namespace sirtaki {

/// A result whose size is known only after the ranks have agreed.
class Buffer {
 public:
  /// In memory of the engine.
  Buffer(Shape shape, size_t bytes) : shape_(std::move(shape)), bytes_(bytes) {
    // Zero bytes still need a distinct, aligned address.
    const size_t rounded = (bytes / kAlign + 1) * kAlign;
    own_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlign, rounded)));
    if (own_ == nullptr) throw std::bad_alloc();
    data_ = own_.get();
  }
  /// In memory of the caller.
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

/// Returns memory for result number `tensor`, which the engine then fills; null: there is none. The
/// thread that makes progress calls it: it must not use the engine.
using Allocate = std::function<void*(size_t tensor, const Shape& shape, size_t bytes)>;

/// One submitted operation: the caller waits for it and gets its results.
class Handle : public std::enable_shared_from_this<Handle> {
 public:
  /// Called once, when the handle is done, by the thread that notices it; that thread holds no lock
  /// of the engine, so the callback may use it.
  using OnDone = std::function<void(const Handle&)>;

  explicit Handle(OnDone on_done = nullptr) : on_done_(std::move(on_done)) {}
  ~Handle() {
    if (void* owner = take_owner()) let_go_(owner);
  }

  /// Keeps the owner of the memory that the operation reads and writes: the engine shares the
  /// handle until it no longer touches that memory. The thread that ends the handle releases the
  /// owner.
  void keep(void* owner, void (*let_go)(void* owner)) {
    let_go_ = let_go;
    owner_.store(owner, std::memory_order_release);
  }
  /// Returns what it keeps to the caller; null: nothing.
  void* take_owner() const {
    return owner_.load(std::memory_order_relaxed) == nullptr ? nullptr : owner_.exchange(nullptr);
  }

  bool done() const { return done_.load(); }

  /// The number of nudges: those before it was read end no sleep.
  Parking::Wakeups wakeups() const { return parking_.wakeups(); }
  /// Sleeps until done or nudged, for at most `timeout_ns` (negative: no limit).
  void sleep(Parking::Wakeups seen, int64_t timeout_ns = -1) {
    parking_.park(kDone);
    if (!done()) parking_.sleep(seen, timeout_ns);
  }
  /// Makes sleepers check again.
  void nudge() { parking_.wake(); }

  /// True for the first call, which alone counts.
  bool complete(const std::optional<Error>& error = std::nullopt) {
    if (done()) return false;
    if (error) error_.emplace(*error);
    done_.store(true);
    if (parking_.wants() != 0) parking_.wake();
    return true;
  }

  bool calls_back() const { return on_done_ != nullptr; }
  void call_back() const { on_done_(*this); }

  /// Set once done.
  const std::optional<Error>& error() const { return error_; }

  std::vector<std::shared_ptr<Buffer>> outputs;  ///< for kinds whose result size is negotiated
  std::vector<int64_t> received_splits;          ///< rows from each member, for each tensor in turn
  Message message;                               ///< of a receive
  uint64_t record = 0;                           ///< the operation's in the flight recorder
  std::unique_ptr<FlightRecord::Words> traced;   ///< the message's record, during a recording
  int32_t value = -1;                            ///< join: the last rank; add_process_set: its id

 private:
  static constexpr uint32_t kDone = 1;

  const OnDone on_done_;
  mutable std::atomic<void*> owner_{nullptr};
  void (*let_go_)(void* owner) = nullptr;
  std::atomic<bool> done_{false};
  Parking parking_{};
  std::optional<Error> error_;
};

}  // namespace sirtaki
