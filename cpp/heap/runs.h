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
  kOwn,        ///< somebody's, and no longer shared
  kReturning,  ///< on its way back to the system
  kRetired,    ///< never used again
};

/// What is known of the run that begins at a granule.
struct Run {
  State state;
  uint32_t granules;
  uint32_t next, previous;  ///< in its bin, while it is free; else `next` is its label
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
/// what is fresh needs no clearing and what is dirty is used again before new pages are touched.
class Runs {
 public:
  struct Taken {
    uint32_t at;
    bool fresh;
  };
  struct Range {
    uint32_t at, granules;
  };

  /// Bytes of zeroed memory that `start` needs.
  static size_t bytes_for(uint32_t granules);
  /// Begins with one fresh run. memory: zeroed, `bytes_for(granules)`, and stays the caller's.
  void start(void* memory, uint32_t granules);

  /// A run of exactly so many granules that begins at a multiple of `alignment`, a power of two;
  /// of dirty ones rather than fresh ones. Nothing: there is none.
  std::optional<Taken> take(uint32_t granules, uint32_t alignment);
  /// Makes a live run dirty.
  void give(uint32_t at);
  /// Makes the live run at `at` that long, where it is; false: the next one is not free or too
  /// short.
  bool resize(uint32_t at, uint32_t granules);
  /// What its user notes of a live run; of a new one it is undefined.
  void set_label(uint32_t at, uint32_t label) { runs_[at].next = label; }
  /// Live becomes own, own retired.
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
