#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "pairs/message.h"
#include "transport/memory/flight_record.h"

namespace sirtaki {

/// The messages of this rank that ended during a recording, until they are taken.
class MessageLog {
 public:
  using Words = FlightRecord::Words;

  void be_on(bool wanted) { on_.store(wanted, std::memory_order_relaxed); }

  /// The words to keep with a message; null: nothing records.
  std::unique_ptr<Words> begun(Transfer& transfer) const {
    return on_.load(std::memory_order_relaxed) ? words_of(transfer) : nullptr;
  }
  /// For a receive, `message` describes what has arrived.
  void ended(Words words, const Message& message, bool well);

  /// Appends them to `found`; returns how many were lost for lack of room since the last time.
  uint64_t take(std::vector<Words>& found);

 private:
  static constexpr size_t kMost = 1 << 16;

  static std::unique_ptr<Words> words_of(Transfer& transfer);

  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::vector<Words> ended_;
  uint64_t lost_ = 0;
};

}  // namespace sirtaki
