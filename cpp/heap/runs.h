#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace sirtaki::heap {

/// What a run of granules is.
enum class State : uint32_t {
  kFresh,      ///< free, and without pages: it was never used, or went back to the system
  kDirty,      ///< free, with what its last user left in it
  kLive,       ///< somebody's
  kAbandoned,  ///< the same, and others may write there at any time
  kHeld,       ///< freed, and kept as it is for forks that may read it
  kRetired,    ///< never used again
};

struct Run {
  uint32_t begin, granules;
  State state;
  uint32_t born, freed;  ///< after how many forks, of blocks
  uint32_t end() const { return begin + granules; }
};

/// Which granules of an arena are whose: its runs in their order, one behind the other. Blocks are
/// large and therefore few; what is looked for is found by looking at all. Knows no addresses and
/// allocates nothing; not thread-safe.
///
/// Free neighbours of one kind are one run at all times. Fresh and dirty ones stay apart, so that
/// what is dirty is used again before new pages are touched.
class Runs {
 public:
  struct Range {
    uint32_t begin, granules;
  };

  /// Bytes of memory that `start` needs; they are touched where runs are.
  static size_t bytes_for(uint32_t granules) { return (size_t{granules} + 2) * sizeof(Run); }
  /// Begins with one fresh run. memory: `bytes_for(granules)`, and stays the caller's.
  void start(void* memory, uint32_t granules);

  /// A live run of exactly so many dirty, or fresh, granules that begins at a multiple of
  /// `alignment`, a power of two. Nothing: there is none.
  std::optional<uint32_t> take(State of, uint32_t granules, uint32_t alignment, uint32_t born);
  /// Makes the run that begins there dirty.
  void give(uint32_t begin) { change(begin, State::kDirty); }
  /// Keeps the block that begins there as it is.
  void hold(uint32_t begin, uint32_t freed);
  /// Makes dirty what is held and of which `is_over` is true; returns how many granules.
  template <typename IsOver>
  uint64_t give_held(IsOver is_over) {
    uint64_t given = 0;
    for (size_t at = 0; at < count_; ++at) {
      if (runs_[at].state != State::kHeld || !is_over(runs_[at])) continue;
      given += runs_[at].granules;
      at = become(at, State::kDirty);
    }
    return given;
  }
  /// Of a block: what it is from now on.
  void set(uint32_t begin, State state) { runs_[index_of(begin)].state = state; }

  /// The end of the largest dirty run, up to so many granules; zero granules: none is dirty.
  Range most_dirty(uint32_t granules) const;
  /// Makes fresh what is dirty.
  void clean(Range range);

  /// The run that this granule is in.
  const Run& of(uint32_t granule) const { return runs_[index_of(granule)]; }
  uint32_t size() const { return runs_[count_ - 1].end(); }
  /// The end of what was ever used.
  uint32_t top() const { return top_; }
  uint64_t dirty() const { return dirty_; }
  uint64_t fresh() const { return fresh_; }

 private:
  size_t index_of(uint32_t granule) const;
  size_t cut(size_t at, uint32_t granule);
  void change(uint32_t begin, State state) { become(index_of(begin), state); }
  size_t become(size_t at, State state);
  void erase(size_t at);
  uint64_t* count_of(State state);

  Run* runs_ = nullptr;
  size_t count_ = 0;
  uint32_t top_ = 0;
  uint64_t dirty_ = 0, fresh_ = 0;  ///< granules
};

}  // namespace sirtaki::heap
