#include "engine/observe/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/decimal.h"
#include "base/error.h"
#include "base/thread.h"
#include "collectives/kinds.h"
#include "engine/execution/flight.h"

namespace sirtaki {
namespace {

constexpr char kClose[] = "\n]";
constexpr size_t kMostTracks = 1 << 16;  ///< that are remembered while they are idle

std::string upper(const char* text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');  // toupper uses the locale
  }
  return result;
}

/// The trace's name for the data exchange of an operation.
std::string phase_of(const Request& request) {
  const bool adasum = request.kind == Kind::kAllreduce && request.reduce == ReduceOp::kAdasum;
  return adasum ? "ADASUM" : upper(traits_of(request.kind).name);
}

std::string json_text(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return result + "\"";
}

std::string full_name(const Request& request, uint64_t ordinal) {
  if (!request.name.empty()) return request.name;
  return std::string(traits_of(request.kind).name) + ".noname." + std::to_string(ordinal);
}

std::string shapes_text(const Request& request) {
  std::string text;
  for (const Shape& shape : request.shapes) text += (text.empty() ? "" : ", ") + shape_text(shape);
  return text;
}

}  // namespace

Timeline::Timeline(const std::string& path, bool mark_cycles, const Log& log)
    : path_(path),
      log_(log),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      mark_cycles_(mark_cycles),
      start_ns_(now_ns()) {
  if (file_.get() < 0) {
    throw invalid("cannot write the timeline to '" + path + "': " + std::strerror(errno));
  }
  const auto epoch = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(epoch).count();
  const std::string first =
      "[\n{\"name\": \"start\", \"ph\": \"M\", \"pid\": 0, \"args\": "
      "{\"start_time_since_epoch_in_micros\": " +
      std::to_string(micros) + "}}";
  write(first);
  thread_ = start_thread([this] { write_loop(); });
}

Timeline::~Timeline() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  news_.notify_one();
  thread_.join();
}

void Timeline::negotiate_begin(const Request& request, uint64_t ordinal) {
  const std::lock_guard lock(mutex_);
  event("B", "NEGOTIATE_" + upper(traits_of(request.kind).name), track_of(request, ordinal));
}

void Timeline::negotiate_rank(const Request& request, uint64_t ordinal, int rank) {
  const std::lock_guard lock(mutex_);
  event("i", std::to_string(rank), track_of(request, ordinal), ", \"s\": \"p\"");
}

void Timeline::negotiate_end(const Request& request, uint64_t ordinal) {
  const std::lock_guard lock(mutex_);
  event("E", "NEGOTIATE_" + upper(traits_of(request.kind).name), track_of(request, ordinal));
}

void Timeline::run_begin(const std::vector<Item>& items) {
  const std::lock_guard lock(mutex_);
  if (mark_cycles_) event("i", "CYCLE_START", 0, ", \"s\": \"g\"");
  for (const Item& item : items) {
    const Request& base = item.response->base;
    event("B", phase_of(base), track_of(base, item.ordinal),
          ", \"args\": {\"dtype\": " + json_text(name(base.dtype)) +
              ", \"shape\": " + json_text(shapes_text(base)) + "}");
  }
}

void Timeline::run_end(const std::vector<Item>& items) {
  const std::lock_guard lock(mutex_);
  for (const Item& item : items) {
    const Request& base = item.response->base;
    event("E", phase_of(base), track_of(base, item.ordinal));
    if (base.name.empty() || tracks_.size() > kMostTracks) {
      tracks_.erase(full_name(base, item.ordinal));  // this name may never come again
    }
  }
}

int Timeline::track_of(const Request& request, uint64_t ordinal) {
  const std::string name = full_name(request, ordinal);
  const auto [found, added] = tracks_.try_emplace(name, last_track_ + 1);
  if (added) {
    ++last_track_;
    event("M", "process_name", found->second, ", \"args\": {\"name\": " + json_text(name) + "}");
  }
  return found->second;
}

void Timeline::event(const char* phase, const std::string& name, int track,
                     const std::string& more) {
  const double micros = static_cast<double>(now_ns() - start_ns_) * 1e-3;
  if (buffer_.empty()) news_.notify_one();
  buffer_ += ",\n{\"name\": \"" + name + "\", \"ph\": \"" + phase +
             "\", \"ts\": " + fixed_text(micros, 3) + ", \"pid\": " + std::to_string(track) +
             ", \"tid\": 0" + more + "}";
}

void Timeline::write_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return stop_ || !buffer_.empty(); });
    const bool last = stop_;
    std::string events;
    events.swap(buffer_);
    lock.unlock();
    if (!events.empty()) write(events);
    lock.lock();
    if (last && buffer_.empty()) return;
  }
}

/// Overwrites the closing bracket of the last write, in a single write.
void Timeline::write(const std::string& events) {
  if (failed_) return;
  const std::string text = events + kClose;
  const size_t written = write_at(end_, text);
  if (written == text.size()) {
    end_ += static_cast<int64_t>(events.size());
    return;
  }
  // The disk may be full: keep the complete events that fitted.
  failed_ = true;
  log_.write(LogLevel::kWarning, "the timeline '" + path_ + "' ends early: " +
                                     std::strerror(errno) + "; the job goes on without it");
  const size_t close_bytes = sizeof kClose - 1;
  const size_t fits = written < close_bytes ? 0 : events.rfind(",\n", written - close_bytes);
  if (fits != std::string::npos) end_ += static_cast<int64_t>(fits);
  write_at(end_, kClose);
  [[maybe_unused]] const int cut =
      ::ftruncate(file_.get(), end_ + static_cast<int64_t>(close_bytes));
}

/// Returns the number of bytes written.
size_t Timeline::write_at(int64_t offset, const std::string& text) const {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::pwrite(file_.get(), text.data() + done, text.size() - done,
                                     offset + static_cast<int64_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  return done;
}

}  // namespace sirtaki
