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
  /// Upper bounds of a step's time: a clock that ticks every few milliseconds measures it.
  struct Bound {
    int64_t ns;
    const char* seconds;
  };
  static constexpr std::array<Bound, 14> kStepBounds = {{{10'000'000, "0.01"},
                                                         {25'000'000, "0.025"},
                                                         {50'000'000, "0.05"},
                                                         {100'000'000, "0.1"},
                                                         {250'000'000, "0.25"},
                                                         {500'000'000, "0.5"},
                                                         {1'000'000'000, "1"},
                                                         {2'500'000'000, "2.5"},
                                                         {5'000'000'000, "5"},
                                                         {10'000'000'000, "10"},
                                                         {25'000'000'000, "25"},
                                                         {50'000'000'000, "50"},
                                                         {100'000'000'000, "100"},
                                                         {INT64_MAX, "+Inf"}}};

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
