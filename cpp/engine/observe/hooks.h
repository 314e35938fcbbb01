#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/execution/callbacks.h"
#include "engine/requests/request.h"

namespace sirtaki {

/// Functions to call for every operation of this rank: before it begins, in the submitting thread;
/// when it is done or has failed, in the way that callbacks of handles are called.
class Hooks {
 public:
  enum class Moment : uint8_t { kBefore, kAfter, kAbort };
  /// The error belongs to kAbort.
  using Hook = std::function<void(Moment moment, const Request& request, const Error* error)>;

  /// Returns its number, for `remove`.
  int64_t add(Hook hook) {
    const std::lock_guard lock(mutex_);
    hooks_.emplace(++last_, std::make_shared<Hook>(std::move(hook)));
    any_.store(true, std::memory_order_relaxed);
    return last_;
  }
  /// A hook that is being called may return later than this.
  void remove(int64_t number) {
    const std::lock_guard lock(mutex_);
    hooks_.erase(number);
    any_.store(!hooks_.empty(), std::memory_order_relaxed);
  }

  bool any() const { return any_.load(std::memory_order_relaxed); }

  void tell(Moment moment, const Request& request, const Error* error = nullptr) {
    std::map<int64_t, std::shared_ptr<Hook>> hooks;
    {
      const std::lock_guard lock(mutex_);
      hooks = hooks_;
    }
    for (const auto& [number, hook] : hooks) (*hook)(moment, request, error);
  }

  /// The operation has ended; `callbacks`, which end earlier, will call the hooks.
  void ended(const Request& request, const std::optional<Error>& error, Callbacks& callbacks) {
    callbacks.add(std::make_shared<Handle>([this, request, error](const Handle&) {
      tell(error ? Moment::kAbort : Moment::kAfter, request, error ? &*error : nullptr);
    }));
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Hook>> hooks_;
  int64_t last_ = 0;
  std::atomic<bool> any_{false};
};

}  // namespace sirtaki
