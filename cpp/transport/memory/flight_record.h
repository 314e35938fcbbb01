#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sirtaki {

/// Words with one writer at a time, which others read consistently or not at all, without making
/// the writer wait: a sequence lock. All-zero memory was never written.
///
/// The writer's process may be stopped or killed in the middle: readers give up after a while.
class alignas(128) FlightRecord {
 public:
  static constexpr size_t kWords = 15;
  using Words = std::array<uint64_t, kWords>;

  /// Changes words, beginning with word `first`.
  template <size_t N>
  void write(size_t first, const std::array<uint64_t, N>& words) {
    const uint64_t version = begin();
    for (size_t i = 0; i < N; ++i) store(first + i, words[i]);
    end(version);
  }
  /// Changes two words.
  void write(size_t one, uint64_t its, size_t other, uint64_t others) {
    const uint64_t version = begin();
    store(one, its);
    store(other, others);
    end(version);
  }

  /// A word that this process wrote itself.
  uint64_t own(size_t word) const { return words_[word].load(std::memory_order_relaxed); }

  /// False if it was being written all the time.
  bool read(Words& words) const {
    constexpr int kTries = 64;
    for (int i = 0; i < kTries; ++i) {
      const uint64_t before = version_.load(std::memory_order_acquire);
      if (before % 2 != 0) continue;
      for (size_t w = 0; w < kWords; ++w) words[w] = words_[w].load(std::memory_order_acquire);
      if (version_.load(std::memory_order_relaxed) == before) return true;
    }
    return false;
  }

 private:
  uint64_t begin() {
    const uint64_t version = version_.load(std::memory_order_relaxed) | 1;
    version_.store(version, std::memory_order_relaxed);
    return version;
  }
  /// Releases the stores above: a reader that sees the word also sees that a write is in progress.
  void store(size_t word, uint64_t value) { words_[word].store(value, std::memory_order_release); }
  void end(uint64_t version) { version_.store(version + 1, std::memory_order_release); }

  std::atomic<uint64_t> version_;  ///< odd while it is being written
  std::array<std::atomic<uint64_t>, kWords> words_;
};
static_assert(sizeof(FlightRecord) == 128);

}  // namespace sirtaki
