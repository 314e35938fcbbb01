#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sirtaki {

/// The numbers of finished operations, from any thread, for a Python thread that notifies waiting
/// callers.
class Completions : public std::enable_shared_from_this<Completions> {
 public:
  void add(int64_t number) {
    {
      const std::lock_guard lock(mutex_);
      numbers_.push_back(number);
    }
    changed_.notify_one();
  }
  /// The numbers since the last call, once there are some; none after `close`.
  std::vector<int64_t> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !numbers_.empty(); });
    return std::exchange(numbers_, {});
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> numbers_;
  bool closed_ = false;
};

}  // namespace sirtaki
