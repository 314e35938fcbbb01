#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace sirtaki::jax {

/// Threads that notify XLA of finished operations: XLA continues its computation in the notifying
/// thread, and if that were the engine's, nothing would move meanwhile.
///
/// There are as many as have been busy at once: XLA's computation may wait for another operation,
/// when the devices of a process wait for each other.
class Completer {
 public:
  /// The instance of the process. It is never destroyed: computations may outlive static objects.
  static Completer& instance() {
    static auto* completer = new Completer;
    return *completer;
  }

  void add(std::function<void()> completion) {
    std::unique_lock lock(mutex_);
    if (waiting_.size() >= idle_ && !add_thread()) {
      lock.unlock();
      return completion();  // better late than never
    }
    waiting_.push_back(std::move(completion));
    added_.notify_one();
  }

 private:
  /// False if the system cannot start another thread.
  bool add_thread() {
    try {
      std::thread([this] { run(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++idle_;  // will be idle at first
    return true;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      added_.wait(lock, [this] { return !waiting_.empty(); });
      const std::function<void()> completion = std::move(waiting_.front());
      waiting_.pop_front();
      --idle_;
      lock.unlock();
      completion();
      lock.lock();
      ++idle_;
    }
  }

  std::mutex mutex_{};
  std::condition_variable added_{};
  std::deque<std::function<void()>> waiting_{};
  size_t idle_ = 0;  ///< threads that take what waits
};

}  // namespace sirtaki::jax
