#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/fd.h"

namespace sirtaki {

/// Memory for arrays that the other ranks of the host can map: blocks of one memory file of a fixed
/// size. Any thread may call it.
///
/// A fork gets no new blocks, and what it inherits becomes private to it: the place of a block is
/// not reused while a fork lives that has inherited it.
class OwnHeap {
 public:
  /// Blocks begin at multiples of this, which is at least the page size of every system.
  static constexpr size_t kGranule = 64 << 10;

  /// `span`: the size of the file, of which only the used part takes memory.
  explicit OwnHeap(uint64_t span);
  /// For tests; a process's own heap lives until the process ends.
  ~OwnHeap();
  OwnHeap(const OwnHeap&) = delete;
  OwnHeap& operator=(const OwnHeap&) = delete;

  struct File {
    std::byte* base;
    uint64_t bytes;
    int fd;  ///< owned by the heap
  };
  /// What other processes need to map it; none: there is no file, or this process is a fork.
  std::optional<File> file();
  /// Why there is no file.
  const std::string& why_none() const { return why_none_; }

  /// Null: there is not enough room.
  std::byte* allocate(uint64_t bytes);
  /// Frees a block that `allocate` returned.
  void release(std::byte* block);
  /// Whether one block that was not abandoned holds all of these bytes.
  bool holds(const std::byte* data, uint64_t bytes);
  /// Peers may still write into the blocks that these bytes touch: they stay mapped, are no longer
  /// shared, and their place is never reused once they are freed.
  void abandon(const std::byte* data, uint64_t bytes);

  void before_fork();
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child();

 private:
  struct Block {
    uint64_t bytes;
    uint32_t born;  ///< the number of forks before it
    bool live = true;
    bool abandoned = false;
  };

  void map(uint64_t span);
  bool has_file() const;
  void free_unused();

  std::mutex mutex_;
  Fd fd_;
  uint64_t inode_ = 0;  ///< of the file that `fd_` was opened for
  std::byte* base_ = nullptr;
  uint64_t span_ = 0;
  std::string why_none_;
  std::map<std::byte*, Block, std::less<>> blocks_;
  uint64_t live_ = 0, most_live_ = 0;  ///< bytes
  bool forked_ = false;
  uint32_t forks_ = 0;  ///< the number made while there were blocks
  int page_id_ = -1;    ///< System V memory that forks inherit: the kernel counts the processes
  const void* page_ = nullptr;
};

/// The heap of this process, made by the first call.
OwnHeap& own_heap();

}  // namespace sirtaki
