#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/options.h"

namespace sirtaki {

/// Finds the chunk size and the fusion threshold with which the job moves most bytes per
/// microsecond.
///
/// One parameter after the other is tried at each of its values; the best stays. A sample is a
/// number of training steps: it lasts until any operation has returned so many times, and begins
/// with the first time of that one, so operations that never return do not matter. A plain state
/// machine, fed by the sequencer.
class Autotuner {
 public:
  struct Settings {
    int64_t chunk_bytes;
    int64_t fusion_bytes;
    bool operator==(const Settings&) const = default;
  };

  /// Throws Error(kInvalid) if the log cannot be written.
  explicit Autotuner(const EngineOptions& options);

  /// A batch of operations of these names goes out. Returns true if the settings changed.
  bool record(const std::set<std::string>& names, int64_t bytes, int64_t now_ns);

  const Settings& settings() const { return settings_; }
  bool done() const { return done_; }

 private:
  enum class Stage { kWarmup, kChunk, kFusion };

  void finish_sample(double score);
  void next_candidate();
  void apply(int64_t value);
  void log(double score);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  const AutotuneOptions options_;
  Settings settings_;
  std::unique_ptr<std::FILE, Close> log_;
  Stage stage_ = Stage::kWarmup;
  bool done_ = false;
  int warmups_left_;
  int samples_left_;
  std::vector<int64_t> candidates_;  ///< of the current stage, still to be tried
  int64_t best_value_ = 0;
  double best_score_ = -1;

  struct Seen {
    int returns;
    int64_t first_ns;
    int64_t bytes_before;  ///< of the sample, before its first time
  };
  std::unordered_map<std::string, Seen> seen_;  ///< operations of this sample
  int64_t bytes_ = 0;                           ///< of this sample
};

}  // namespace sirtaki
