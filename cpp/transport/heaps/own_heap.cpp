#include "transport/heaps/own_heap.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace sirtaki {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

/// glibc has this function only since 2.27.
Fd memory_file(unsigned flags) {
  return Fd(static_cast<int>(syscall(SYS_memfd_create, "sirtaki-heap", flags)));
}

/// Makes a file of a fixed size: no other process can remove pages that are in use here.
Fd make_file(uint64_t span) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd file = memory_file(kFlags | MFD_NOEXEC_SEAL);
  // Kernels before 6.3 do not know that flag.
  if (file.get() < 0 && errno == EINVAL) file = memory_file(kFlags);
  const bool made = file.get() >= 0 && ftruncate(file.get(), static_cast<off_t>(span)) == 0 &&
                    fcntl(file.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0;
  return made ? std::move(file) : Fd();
}

uint64_t inode_of(int file) {
  struct stat info;
  return fstat(file, &info) == 0 ? info.st_ino : 0;
}

template <typename Resource>
bool is_limited(Resource resource, uint64_t bytes) {
  rlimit limit;
  return getrlimit(resource, &limit) == 0 && limit.rlim_cur < bytes;
}

std::string because(const char* what) {
  return std::string(what) + " (" + std::strerror(errno) + ")";
}

/// Whether no other process has the page attached.
bool is_own(int page_id) {
  shmid_ds found;
  return shmctl(page_id, IPC_STAT, &found) == 0 && found.shm_nattch == 1;
}

OwnHeap* make_own_heap() {
  const auto memory =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  // 64 ranks map at most half of a process's address space.
  auto* const heap = new OwnHeap(std::clamp(memory, uint64_t{1} << 30, uint64_t{1} << 40));
  pthread_atfork([] { own_heap().before_fork(); }, [] { own_heap().after_fork_in_parent(); },
                 [] { own_heap().after_fork_in_child(); });
  return heap;
}

}  // namespace

OwnHeap& own_heap() {
  // Arrays may outlive every static object.
  static OwnHeap* const heap = make_own_heap();
  return *heap;
}

OwnHeap::OwnHeap(uint64_t span) {
  if (is_limited(RLIMIT_FSIZE, span)) {
    // A file beyond that limit would kill the process.
    why_none_ = "the size of files is limited (ulimit -f)";
  } else if (is_limited(RLIMIT_AS, RLIM_INFINITY)) {
    why_none_ = "addresses are limited (ulimit -v)";
  } else {
    map(span);
  }
}

void OwnHeap::map(uint64_t span) {
  Fd file = make_file(span);
  if (file.get() < 0) {
    why_none_ = because("no file in memory can be made");
    return;
  }
  void* base = mmap(nullptr, span, kReadWrite, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) {
    why_none_ = because("a file in memory cannot be mapped");
    return;
  }
  madvise(base, span, MADV_HUGEPAGE);
  madvise(base, span, MADV_DONTDUMP);  // a dump would touch all pages
  inode_ = inode_of(file.get());
  fd_ = std::move(file);
  base_ = static_cast<std::byte*>(base);
  span_ = span;
}

OwnHeap::~OwnHeap() {
  if (base_ != nullptr) munmap(base_, span_);
  if (page_ != nullptr) shmdt(page_);
}

/// Programs may close descriptors that they do not know.
bool OwnHeap::has_file() const { return inode_ != 0 && inode_of(fd_.get()) == inode_; }

std::optional<OwnHeap::File> OwnHeap::file() {
  const std::lock_guard lock(mutex_);
  if (forked_ || !has_file()) return std::nullopt;
  return File{base_, span_, fd_.get()};
}

std::byte* OwnHeap::allocate(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (forked_ || bytes == 0 || bytes > span_) return nullptr;
  free_unused();
  const uint64_t size = (bytes + kGranule - 1) / kGranule * kGranule;
  // Takes the first gap: memory that was used before already has its pages.
  std::byte* at = base_;
  for (const auto& [begin, block] : blocks_) {
    if (static_cast<uint64_t>(begin - at) >= size) break;
    at = begin + block.bytes;
  }
  if (span_ - static_cast<uint64_t>(at - base_) < size) return nullptr;
  blocks_.emplace(at, Block{size, forks_});
  live_ += size;
  most_live_ = std::max(most_live_, live_);
  return at;
}

void OwnHeap::release(std::byte* block) {
  const std::lock_guard lock(mutex_);
  Block& found = blocks_.at(block);
  found.live = false;
  live_ -= found.bytes;
  if (!forked_) return free_unused();
  madvise(block, found.bytes, MADV_DONTNEED);  // the pages that the child wrote there
}

/// Frees the places of blocks that no process uses any more, forks included. Memory beyond the
/// largest size that was live at once goes back to the system.
void OwnHeap::free_unused() {
  const bool forks_live = forks_ > 0 && (page_ == nullptr || !is_own(page_id_));
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    const auto [begin, block] = *at;
    if (block.live || (forks_live && block.born < forks_)) {
      ++at;
      continue;
    }
    const bool keeps = static_cast<uint64_t>(begin - base_) + block.bytes <= most_live_;
    if (block.abandoned || !keeps) madvise(begin, block.bytes, MADV_REMOVE);
    at = block.abandoned ? std::next(at) : blocks_.erase(at);
  }
}

bool OwnHeap::holds(const std::byte* data, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto next = blocks_.upper_bound(data);
  if (forked_ || next == blocks_.begin()) return false;
  const auto& [begin, block] = *std::prev(next);
  const auto before = static_cast<uint64_t>(data - begin);
  return block.live && !block.abandoned && before <= block.bytes && bytes <= block.bytes - before;
}

void OwnHeap::abandon(const std::byte* data, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (auto& [begin, block] : blocks_) {
    if (begin < data + bytes && data < begin + block.bytes) block.abandoned = true;
  }
}

void OwnHeap::before_fork() {
  mutex_.lock();
  if (forked_ || blocks_.empty() || forks_++ > 0) return;
  page_id_ = shmget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
  if (page_id_ < 0) return;
  void* const page = shmat(page_id_, nullptr, SHM_RDONLY);
  shmctl(page_id_, IPC_RMID, nullptr);
  if (page != reinterpret_cast<void*>(-1)) page_ = page;
}

/// Replaces the used part by a private view, which costs nothing until the child writes.
void OwnHeap::after_fork_in_child() {
  if (!forked_ && !blocks_.empty()) {
    const auto& [begin, block] = *blocks_.rbegin();
    const auto used = static_cast<uint64_t>(begin - base_) + block.bytes;
    constexpr int kPrivate = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED;
    if (!has_file() || mmap(base_, used, kReadWrite, kPrivate, fd_.get(), 0) == MAP_FAILED) {
      // Memory that the child cannot copy must not be changed for its parent.
      mprotect(base_, used, PROT_READ);
    }
    madvise(base_, used, MADV_DONTDUMP);
  }
  forked_ = base_ != nullptr;
  mutex_.unlock();
}

}  // namespace sirtaki
