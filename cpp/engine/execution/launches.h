#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/requests/request.h"

namespace sirtaki {

/// An operation on tensors of an accelerator that all members have agreed on.
struct Launch {
  static constexpr int64_t kJoined = -1;

  int64_t number = kJoined;  ///< the caller's number; kJoined: this rank takes part with zeros
  std::shared_ptr<const Response> response;
  std::vector<int> ranks;  ///< the members
  uint64_t record = 0;     ///< its number in the flight recorder
};

/// Agreed operations for a thread of the caller to launch: in batches, in one order on all ranks,
/// whatever their process sets.
class Launches {
 public:
  using Batch = std::vector<Launch>;

  /// Calls `launched` with the record of each operation that its caller has launched.
  explicit Launches(std::function<void(uint64_t record)> launched)
      : launched_(std::move(launched)) {}

  void add(Batch batch) {
    {
      const std::lock_guard lock(mutex_);
      batches_.push_back(std::move(batch));
    }
    changed_.notify_all();
  }

  /// The next batch, once there is one; an empty one after the end. Throws the error that ended the
  /// world, even if batches are left. A caller that takes one has launched the one before.
  Batch take() {
    std::unique_lock lock(mutex_);
    if (!closed_) {
      for (const uint64_t record : taken_) launched_(record);
    }
    taken_.clear();
    changed_.wait(lock, [&] { return closed_ || !batches_.empty(); });
    if (error_) throw Error(*error_);
    if (batches_.empty()) return {};
    Batch batch = std::move(batches_.front());
    batches_.pop_front();
    for (const Launch& launch : batch) taken_.push_back(launch.record);
    return batch;
  }

  /// Waits for the end; throws the error that ended the world.
  void await_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_; });
    if (error_) throw Error(*error_);
  }

  /// Ends the launches; only the first call counts.
  void close(const std::optional<Error>& error = std::nullopt) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
      if (error) error_.emplace(*error);
    }
    changed_.notify_all();
  }

 private:
  const std::function<void(uint64_t)> launched_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> batches_;
  std::vector<uint64_t> taken_;  ///< records of the latest batch
  bool closed_ = false;
  std::optional<Error> error_;
};

}  // namespace sirtaki
