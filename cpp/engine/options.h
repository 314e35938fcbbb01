#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/decimal.h"
#include "base/log.h"
#include "transport/channel.h"

namespace sirtaki {

/// A time limit in the form that error messages use: `0.5 s`.
inline std::string seconds_text(double seconds) { return short_text(seconds) + " s"; }

/// How the engine searches for good settings.
struct AutotuneOptions {
  bool enabled = false;
  std::string log;         ///< CSV file: one row per sample, the result last; empty: none
  int warmup_samples = 3;  ///< not counted
  int steps_per_sample = 10;
  int max_samples = 20;
  bool chunk_fixed = false;  ///< set by the user: not tuned
  bool fusion_fixed = false;
};

/// The knobs of an engine; Python's Config fills them in.
struct EngineOptions {
  int64_t fusion_bytes =
      128 << 20;                   ///< ready operations are joined up to this many bytes; 0: never
  int64_t chunk_bytes = 96 << 10;  ///< piece of a stream that is in flight at a time
  bool adapts_chunk = true;        ///< to whether cores are free, unless it is fixed or tuned
  int64_t cache_capacity = 1024;   ///< operations known by a short id; 0: none
  double stall_shutdown_seconds = 0;  ///< 0: never fail
  int64_t caller_spin_ns = 200'000;   ///< polling before sleep, in a thread blocked in a call
  int64_t engine_spin_ns = 5'000;     ///< the same in the engine thread
  LogLevel log_level = LogLevel::kWarning;
  bool log_time = true;
  AutotuneOptions autotune;
  bool single_copy = true;          ///< large messages are read out of the sender's memory
  int direct_hosts = 8;             ///< up to this many all exchange data; the same on all ranks
  std::vector<std::string> hosts;   ///< host name of each rank, for error messages; may be empty
  double data_timeout_seconds = 0;  ///< no progress for this long ends the world; 0: never
  double host_timeout_seconds = 5;  ///< a host silent for this long is lost; 0: never
  /// The world ends when all ranks have been blocked for this long, each waiting for others; 0:
  /// never.
  double deadlock_seconds = 60;
  bool has_whole_job = false;              ///< no process of the job is outside the world
  bool own_threads = true;                 ///< else a scheduler calls Engine::step
  int heartbeat = -1;                      ///< a file, see Watcher; negative: none
  double silent_seconds = kSilentSeconds;  ///< the limit for a channel: see Channel::is_silent

  /// ` (node-b)`, the suffix of a rank; empty if its host's name is not known.
  std::string host_text(int rank) const {
    const auto index = static_cast<size_t>(rank);
    return index < hosts.size() ? " (" + hosts[index] + ")" : "";
  }
};

}  // namespace sirtaki
