#include "engine/sequencer/autotuner.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace sirtaki {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
constexpr size_t kMostNames = 1 << 16;

}  // namespace

Autotuner::Autotuner(const EngineOptions& options)
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

bool Autotuner::record(const std::set<std::string>& names, int64_t bytes, int64_t now_ns) {
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
  // Names that never return are no training steps.
  if (seen_.size() > kMostNames) seen_.clear();
  return false;
}

void Autotuner::finish_sample(double score) {
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

/// The value of the current stage to try next; without one the best stays and the next stage
/// begins.
void Autotuner::next_candidate() {
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

void Autotuner::apply(int64_t value) {
  (stage_ == Stage::kFusion ? settings_.fusion_bytes : settings_.chunk_bytes) = value;
}

void Autotuner::log(double score) {
  if (log_ == nullptr) return;
  std::fprintf(log_.get(), "%lld,%g,%.3f\n", static_cast<long long>(settings_.chunk_bytes / kKiB),
               static_cast<double>(settings_.fusion_bytes) / static_cast<double>(kMiB), score);
  std::fflush(log_.get());
}

}  // namespace sirtaki
