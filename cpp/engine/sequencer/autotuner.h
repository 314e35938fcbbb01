#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "engine/options.h"

namespace sirtaki {

/// Searches for the chunk size and the fusion threshold with which the job moves most bytes per
/// microsecond.
///
/// It tries each parameter in turn at each of its values, and keeps the best. A sample is a number
/// of training steps: it lasts until any one operation has recurred that often, and begins with the
/// first time of that operation, so operations that never recur do not matter. A plain state
/// machine, fed by the sequencer.
class Autotuner {
 public:
  struct Settings {
    int64_t chunk_bytes;
    int64_t fusion_bytes;
    bool operator==(const Settings&) const = default;
  };

  /// Throws Error(kInvalid) if the log cannot be written.
  explicit Autotuner(const EngineOptions& options)
      : options_(options.autotune),
        settings_{options.chunk_bytes, options.fusion_bytes},
        warmups_left_(options.autotune.warmup_samples),
        samples_left_(options.autotune.max_samples) {
    if (options_.log.empty()) return;
    log_.reset(std::fopen(options_.log.c_str(), "w"));
    if (log_ == nullptr) {
      throw invalid("cannot write the autotune log to '" + options_.log +
                    "': " + std::strerror(errno));
    }
    std::fputs("chunk_kb,fusion_threshold_mb,bytes_per_microsecond\n", log_.get());
    std::fflush(log_.get());
  }

  /// A batch of operations with these names is sent. Returns true if the settings changed.
  bool record(const std::set<std::string>& names, int64_t bytes, int64_t now_ns) {
    if (done_) return false;
    for (const std::string& name : names) {
      const auto [known, is_new] = seen_.try_emplace(name, Seen{0, now_ns, bytes_});
      if (is_new || ++known->second.returns < options_.steps_per_sample) continue;
      const Seen& mark = known->second;
      const double micros = static_cast<double>(now_ns - mark.first_ns) * 1e-3;
      const Settings before = settings_;
      finish_sample(static_cast<double>(bytes_ - mark.bytes_before) / micros);
      seen_.clear();
      bytes_ = 0;
      return !(settings_ == before);
    }
    bytes_ += bytes;
    // Names that never recur are not training steps.
    if (seen_.size() > kMostNames) seen_.clear();
    return false;
  }

  const Settings& settings() const { return settings_; }
  bool done() const { return done_; }

 private:
  static constexpr int64_t kKiB = 1 << 10;
  static constexpr int64_t kMiB = 1 << 20;
  static constexpr size_t kMostNames = 1 << 16;

  enum class Stage { kWarmup, kChunk, kFusion };

  void finish_sample(double score) {
    if (warmups_left_ > 0) {
      --warmups_left_;
      return;
    }
    log(score);
    --samples_left_;
    if (score > best_score_) {
      best_score_ = score;
      best_value_ = stage_ == Stage::kFusion ? settings_.fusion_bytes : settings_.chunk_bytes;
    }
    next_candidate();
  }

  /// Sets the next value of the current stage; if there is none, the best stays and the next stage
  /// begins.
  void next_candidate() {
    while (candidates_.empty() || samples_left_ <= 0) {
      if (stage_ != Stage::kWarmup) apply(best_value_);
      if (stage_ == Stage::kFusion || samples_left_ <= 0) {
        done_ = true;
        log(best_score_);
        return;
      }
      stage_ = stage_ == Stage::kWarmup ? Stage::kChunk : Stage::kFusion;
      // The value in use has been measured already: `best_score_` is its score.
      best_value_ = stage_ == Stage::kChunk ? settings_.chunk_bytes : settings_.fusion_bytes;
      if (stage_ == Stage::kChunk && !options_.chunk_fixed) {
        candidates_ = {512 * kKiB, 256 * kKiB, 64 * kKiB, 32 * kKiB};
      } else if (stage_ == Stage::kFusion && !options_.fusion_fixed) {
        candidates_ = {64 * kMiB, 16 * kMiB, 4 * kMiB, 1 * kMiB};
      }
    }
    apply(candidates_.back());
    candidates_.pop_back();
  }

  void apply(int64_t value) {
    (stage_ == Stage::kFusion ? settings_.fusion_bytes : settings_.chunk_bytes) = value;
  }

  void log(double score) {
    if (log_ == nullptr) return;
    const double fusion = static_cast<double>(settings_.fusion_bytes) / static_cast<double>(kMiB);
    const std::string row = std::to_string(settings_.chunk_bytes / kKiB) + "," +
                            short_text(fusion) + "," + fixed_text(score, 3) + "\n";
    std::fputs(row.c_str(), log_.get());
    std::fflush(log_.get());
  }

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
    int64_t bytes_before;  ///< of the sample, before the first time
  };
  std::unordered_map<std::string, Seen> seen_;  ///< operations of this sample
  int64_t bytes_ = 0;                           ///< of this sample
};

}  // namespace sirtaki
