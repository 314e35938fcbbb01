#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sirtaki::heap {

/// What a run of granules is.
enum class State : uint32_t {
  kInner,      ///< no run begins here
  kFresh,      ///< free, and all zero: it was never used, or went back to the system
  kDirty,      ///< free, with what its last user left in it
  kLive,       ///< somebody's
  kAbandoned,  ///< the same, and others may write there at any time
  kHeld,       ///< freed, and kept as it is for forks that may read it
  kReturning,  ///< on its way back to the system
  kRetired,    ///< never used again
};

/// What is known of the run that begins at a granule.
struct Run {
  State state;
  uint32_t granules;
  uint32_t next, previous;  ///< in its bin, while it is free
  uint32_t born, freed;     ///< after how many forks, of blocks
};

/// Free runs of one kind by their sizes: small ones in a bin a size, larger ones in 16 bins a power
/// of two.
class Bins {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  void insert(Run* runs, uint32_t at);
  void remove(Run* runs, uint32_t at);
  /// A run of at least so many granules, the best of some; kNone: there is none.
  uint32_t find(const Run* runs, uint32_t granules) const;
  /// One of the largest; kNone: there is none.
  uint32_t largest() const;
  uint64_t granules() const { return granules_; }

 private:
  static constexpr uint32_t kExact = 32;  ///< runs of fewer granules have a bin a size
  static constexpr uint32_t kBins = kExact + 27 * 16;
  static uint32_t bin_of(uint32_t granules);
  uint32_t best_in(const Run* runs, uint32_t bin, uint32_t granules) const;
  uint32_t first_used(uint32_t bin) const;

  uint64_t granules_ = 0;
  std::array<uint64_t, (kBins + 63) / 64> used_{};
  std::array<uint32_t, kBins> heads_{};  ///< granule + 1, so that zero is empty
};

/// Which granules of an arena are whose. Knows no addresses and allocates nothing; not thread-safe.
///
/// Free neighbours of one kind are one run at all times. Fresh and dirty ones stay apart, so that
/// what is dirty is used again before new pages are touched.
class Runs {
 public:
  struct Range {
    uint32_t at, granules;
  };

  /// Bytes of zeroed memory that `start` needs.
  static size_t bytes_for(uint32_t granules);
  /// Begins with one fresh run. memory: zeroed, `bytes_for(granules)`, and stays the caller's.
  void start(void* memory, uint32_t granules);

  /// A live run of exactly so many dirty, or fresh, granules that begins at a multiple of
  /// `alignment`, a power of two. Nothing: there is none.
  std::optional<uint32_t> take(State of, uint32_t granules, uint32_t alignment, uint32_t born);
  /// Makes a block's run, or a held one, dirty.
  void give(uint32_t at);
  /// Keeps a block's run as it is.
  void hold(uint32_t at, uint32_t freed);
  /// Makes dirty what is held and of which `is_over` is true; returns how many granules.
  template <typename IsOver>
  uint64_t give_held(IsOver is_over) {
    uint64_t given = 0;
    for (uint32_t at = 0; at < top_; at += runs_[at].granules) {
      if (runs_[at].state != State::kHeld || !is_over(runs_[at])) continue;
      given += runs_[at].granules;
      give(at);
      at = begin_of(at);  // it may be one with what is before it
    }
    return given;
  }
  /// Live becomes abandoned, that retired.
  void set(uint32_t at, State state) { runs_[at].state = state; }

  /// Takes up to so many dirty granules, one run, out of use; zero granules: none is dirty.
  Range begin_return(uint32_t granules);
  /// Says what became of them: fresh, or still dirty where the system refused.
  void end_return(Range range, State state);

  /// The beginning of the run that this granule is in.
  uint32_t begin_of(uint32_t granule) const;
  const Run& operator[](uint32_t at) const { return runs_[at]; }
  uint32_t size() const { return size_; }
  /// The end of what was ever used.
  uint32_t top() const { return top_; }
  uint64_t dirty() const { return dirty_.granules(); }
  uint64_t fresh() const { return fresh_.granules(); }

 private:
  Bins& bins_of(State state) { return state == State::kFresh ? fresh_ : dirty_; }
  void place(uint32_t at, uint32_t granules, State state);
  void erase(uint32_t at);
  void add_free(uint32_t at, uint32_t granules, State state);
  uint32_t remove_free(uint32_t at);

  Run* runs_ = nullptr;
  uint64_t* begins_ = nullptr;  ///< a bit for each granule at which a run begins
  uint32_t size_ = 0;
  uint32_t top_ = 0;
  Bins fresh_, dirty_;
};

}  // namespace sirtaki::heap
