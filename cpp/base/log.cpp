#include "base/log.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace sirtaki {
namespace {

std::string local_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char seconds[32];
  strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &parts);
  char text[48];
  std::snprintf(text, sizeof text, "%s.%03d ", seconds, static_cast<int>(now.tv_nsec / 1'000'000));
  return text;
}

const char* name(LogLevel level) {
  static constexpr const char* kNames[] = {"trace", "debug", "info", "warning", "error", "fatal"};
  return kNames[static_cast<int>(level)];
}

}  // namespace

Log::Log(std::string who, LogLevel least, bool with_time)
    : who_(std::move(who)), least_(least), with_time_(with_time) {}

void Log::write(LogLevel level, const std::string& text) const {
  if (!shows(level)) return;
  const std::string line =
      (with_time_ ? local_time() : "") + who_ + ": " + name(level) + ": " + text + "\n";
  // Nothing can be done about a failed write to standard error.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace sirtaki
