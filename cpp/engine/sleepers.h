#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "engine/requests/handle.h"

namespace sirtaki {

/// Threads that sleep until an operation is done because another one drives; when that one leaves,
/// one of them is to drive.
class Sleepers {
 public:
  bool any() const { return count_.load() > 0; }

  void nudge() {
    if (!any()) return;
    const std::lock_guard lock(mutex_);
    for (Handle* handle : handles_) handle->nudge();
  }

  /// A thread that may sleep, for as long as this lives.
  class Entry {
   public:
    Entry(Sleepers& sleepers, Handle& handle) : sleepers_(sleepers), handle_(&handle) {
      const std::lock_guard lock(sleepers_.mutex_);
      sleepers_.handles_.push_back(handle_);
      sleepers_.count_.fetch_add(1);
    }
    ~Entry() {
      const std::lock_guard lock(sleepers_.mutex_);
      auto& handles = sleepers_.handles_;
      handles.erase(std::find(handles.begin(), handles.end(), handle_));
      sleepers_.count_.fetch_sub(1);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Sleepers& sleepers_;
    Handle* handle_;
  };

 private:
  std::mutex mutex_;
  std::vector<Handle*> handles_;
  std::atomic<int> count_{0};
};

}  // namespace sirtaki
