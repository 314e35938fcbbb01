#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace sirtaki::jax {

/// A thread that tells XLA of operations that are done: XLA goes on computing in the thread that
/// tells it, and the engine's own would meanwhile move nothing.
class Completer {
 public:
  /// The process's. It is never destroyed: computations may end while the process does.
  static Completer& instance() {
    static auto* completer = new Completer;
    return *completer;
  }

  void add(std::function<void()> completion) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(completion));
    }
    added_.notify_one();
  }

 private:
  Completer() {
    std::thread([this] { run(); }).detach();
  }

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [this] { return !waiting_.empty(); });
      const std::function<void()> completion = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      completion();
    }
  }

  std::mutex mutex_{};
  std::condition_variable added_{};
  std::deque<std::function<void()>> waiting_{};
};

}  // namespace sirtaki::jax
