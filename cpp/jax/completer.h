#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace sirtaki::jax {

/// Threads that tell XLA of operations that are done: XLA goes on computing in the thread that
/// tells it, and the engine's own would meanwhile move nothing.
///
/// There are as many as have been busy at a time: what XLA computes may wait for another operation,
/// where the devices of a process wait for each other.
class Completer {
 public:
  /// The process's. It is never destroyed: computations may end while the process does.
  static Completer& instance() {
    static auto* completer = new Completer;
    return *completer;
  }

  void add(std::function<void()> completion) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(completion));
    if (waiting_.size() > idle_) {
      ++idle_;  // it will be
      std::thread([this] { run(); }).detach();
    } else {
      added_.notify_one();
    }
  }

 private:
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
