#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "engine/requests/request.h"

namespace sirtaki {

struct Item;

/// Writes the engine's work as a Chrome trace (chrome://tracing, Perfetto), one track per tensor.
///
/// Events go to a buffer; a separate thread writes them and leaves a complete JSON array after
/// every write, so the file can be read while the job runs.
class Timeline {
 public:
  /// Throws Error(kInvalid) if the file cannot be written. If its disk becomes full later, `log`
  /// gets one message and the file stays as it is; `log` must outlive this.
  Timeline(const std::string& path, bool mark_cycles, const Log& log);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// The first rank has submitted the operation; `rank` has; all ranks have.
  void negotiate_begin(const Request& request, uint64_t ordinal);
  void negotiate_rank(const Request& request, uint64_t ordinal, int rank);
  void negotiate_end(const Request& request, uint64_t ordinal);

  /// The operations of a batch are being run.
  void run_begin(const std::vector<Item>& items);
  void run_end(const std::vector<Item>& items);

 private:
  void event(const char* phase, const std::string& name, int track, const std::string& more = "");
  int track_of(const Request& request, uint64_t ordinal);
  void write_loop();
  void write(const std::string& events);
  size_t write_at(int64_t offset, const std::string& text) const;

  const std::string path_;
  const Log& log_;
  Fd file_;
  int64_t end_ = 0;      ///< the position of the closing bracket
  bool failed_ = false;  ///< a write failed: nothing more is written
  const bool mark_cycles_;
  const int64_t start_ns_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::string buffer_;
  std::unordered_map<std::string, int> tracks_;
  int last_track_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

/// The timeline that is being written, if any; from any thread.
class CurrentTimeline {
 public:
  std::shared_ptr<Timeline> get() const {
    if (!exists_.load(std::memory_order_relaxed)) return nullptr;
    const std::lock_guard lock(mutex_);
    return timeline_;
  }
  void set(std::shared_ptr<Timeline> timeline) {
    const std::lock_guard lock(mutex_);
    exists_.store(timeline != nullptr, std::memory_order_relaxed);
    timeline_.swap(timeline);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Timeline> timeline_;
  std::atomic<bool> exists_{false};
};

}  // namespace sirtaki
