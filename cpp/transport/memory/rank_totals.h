#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sirtaki {

/// What a rank has done since its engine began: counters that only grow, and that only its process
/// writes. All-zero memory is a rank that has done nothing.
struct alignas(128) RankTotals {
  static constexpr size_t kMostKinds = 16;
  /// Upper bounds of a step's time in ns: a clock that ticks every few milliseconds measures it.
  static constexpr std::array<int64_t, 14> kStepBounds = {
      10'000'000,     25'000'000,     50'000'000,      100'000'000,   250'000'000,
      500'000'000,    1'000'000'000,  2'500'000'000,   5'000'000'000, 10'000'000'000,
      25'000'000'000, 50'000'000'000, 100'000'000'000, INT64_MAX};

  struct OfKind {
    std::atomic<uint64_t> operations, bytes, errors;
  };
  std::array<OfKind, kMostKinds> kinds;
  std::array<std::atomic<uint64_t>, kStepBounds.size()> steps;
  std::atomic<int64_t> steps_ns;
  /// How long some operation waited for ranks that had not asked for it, and since when one does
  /// (0: none).
  std::atomic<int64_t> waited_ns, waits_since_ns;
  std::atomic<int64_t> began_ns;  ///< tells an engine from the earlier ones in the same memory
};

}  // namespace sirtaki
