#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/requests/handle.h"

namespace sirtaki {

/// Finished handles whose callbacks a thread without locks must call.
class Callbacks {
 public:
  explicit Callbacks(const Log& log) : log_(log) {}

  /// From any thread, whatever locks it holds.
  void add(std::shared_ptr<Handle> handle) {
    const std::lock_guard lock(mutex_);
    handles_.push_back(std::move(handle));
    waiting_.store(true, std::memory_order_release);
  }

  bool waiting() const { return waiting_.load(std::memory_order_acquire); }

  /// Calls them in the order in which the handles finished, unless several threads run at once.
  void run() {
    if (!waiting()) return;
    std::vector<std::shared_ptr<Handle>> handles;
    {
      const std::lock_guard lock(mutex_);
      handles.swap(handles_);
      waiting_.store(false, std::memory_order_relaxed);
    }
    for (const auto& handle : handles) call(*handle);
  }

 private:
  void call(const Handle& handle) const {
    try {
      handle.call_back();
    } catch (const std::exception& error) {
      report(error.what());
    } catch (...) {
      report("something that is no std::exception");
    }
  }

  void report(const char* what) const {
    log_.write(LogLevel::kError, std::string("the callback of a finished operation threw: ") +
                                     what + "; the operation itself is not affected");
  }

  const Log& log_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Handle>> handles_;
  std::atomic<bool> waiting_{false};
};

}  // namespace sirtaki
