#pragma once

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

namespace sirtaki {

/// In ascending order; the numbers are those of HOROVOD_LOG_LEVEL's names in Python's Config.
enum class LogLevel : int { kTrace, kDebug, kInfo, kWarning, kError, kFatal };

constexpr const char* name(LogLevel level) {
  constexpr const char* kNames[] = {"trace", "debug", "info", "warning", "error", "fatal"};
  return kNames[static_cast<int>(level)];
}

/// Logs a rank's actions: each line goes to standard error in a single write, so that the lines of
/// several ranks do not interleave.
class Log {
 public:
  /// Logs messages of level `least` and above; `who` begins every line, after the time if wanted.
  Log(std::string who, LogLevel least, bool with_time)
      : who_(std::move(who)), least_(least), with_time_(with_time) {}

  bool shows(LogLevel level) const { return level >= least_; }
  void write(LogLevel level, const std::string& text) const {
    if (!shows(level)) return;
    const std::string line =
        (with_time_ ? local_time() : "") + who_ + ": " + name(level) + ": " + text + "\n";
    // A failed write to standard error cannot be handled.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }

 private:
  static std::string local_time() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    tm parts{};
    localtime_r(&now.tv_sec, &parts);
    char seconds[32];
    strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &parts);
    char text[48];
    std::snprintf(text, sizeof text, "%s.%03d ", seconds,
                  static_cast<int>(now.tv_nsec / 1'000'000));
    return text;
  }

  std::string who_;
  LogLevel least_;
  bool with_time_;
};

}  // namespace sirtaki
