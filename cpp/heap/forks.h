#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sirtaki::heap {

/// Which forks of this process, and forks of these, still live. Not thread-safe; allocates nothing.
///
/// A fork inherits a page of shared memory that only it and its parent have, and the system counts
/// who has it: unlike a descriptor nobody closes it by mistake, and it goes with an exec, too.
class Forks {
 public:
  /// Around a fork of which the parent wants to know.
  void before();
  void after_in_parent();

  /// How many there have been.
  uint32_t count() const { return count_; }
  void forget_ended();
  /// Whether one lives that was made after there had been `from`, and before there were more than
  /// `to`. One that has ended lives until it is forgotten.
  bool lives(uint32_t from, uint32_t to) const;

 private:
  struct Fork {
    uint32_t first, last;  ///< it stands for these: one, unless there is no room for more
    int id;
    void* page;  ///< null: the system has none, so nobody knows whether they live
  };
  static constexpr size_t kMost = 64;

  std::array<Fork, kMost> living_{};
  size_t size_ = 0;
  uint32_t count_ = 0;
};

}  // namespace sirtaki::heap
