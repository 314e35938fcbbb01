#pragma once

#include <string>

namespace sirtaki {

/// In ascending order; the numbers are those of HOROVOD_LOG_LEVEL's names in Python's Config.
enum class LogLevel : int { kTrace, kDebug, kInfo, kWarning, kError, kFatal };

/// Where a rank says what it does: lines on standard error, each in a single write, so that ranks
/// do not interleave.
class Log {
 public:
  /// Shows `least` and what is more severe; `who` begins every line, after the time if wanted.
  Log(std::string who, LogLevel least, bool with_time);

  bool shows(LogLevel level) const { return level >= least_; }
  void write(LogLevel level, const std::string& text) const;

 private:
  std::string who_;
  LogLevel least_;
  bool with_time_;
};

}  // namespace sirtaki
