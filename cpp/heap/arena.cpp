#include "heap/arena.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace sirtaki::heap {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

constexpr uint64_t kTimesMemory = 4;
// 64 arenas of this size fill half of the addresses that a process has.
constexpr uint64_t kMostSpan = uint64_t{1} << 40;

/// Bytes of the arena where nothing else is set.
uint64_t default_span() {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::clamp(kTimesMemory * pages * page, uint64_t{1} << 30, kMostSpan);
}

/// Whether the system gives shared memory huge pages, all of it or where it is advised to.
bool has_huge_pages() {
  const int file = open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 128> text{};
  const ssize_t bytes = read(file, text.data(), text.size() - 1);
  close(file);
  if (bytes <= 0) return false;
  return std::strstr(text.data(), "[never]") == nullptr &&
         std::strstr(text.data(), "[deny]") == nullptr;
}

/// glibc has had the function since 2.27 only.
int memory_file(unsigned flags) {
  return static_cast<int>(syscall(SYS_memfd_create, "sirtaki-heap", flags));
}

/// A file whose size nobody can change: no other process can take pages away from under ours.
int make_file(uint64_t span) {
  int file = memory_file(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  // Kernels before 6.3 do not know that flag.
  if (file < 0 && errno == EINVAL) {
    file = memory_file(MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  if (file < 0) return -1;
  if (ftruncate(file, static_cast<off_t>(span)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0) {
    return file;
  }
  const int why = errno;
  close(file);
  errno = why;
  return -1;
}

/// Addresses for `span` bytes, aligned to huge pages.
char* reserve(uint64_t span) {
  constexpr size_t kSlack = Arena::kMostAlignment;
  void* const all = mmap(nullptr, span + kSlack, PROT_NONE, kAnonymous, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(all);
  const size_t front = (kSlack - reinterpret_cast<uintptr_t>(begin) % kSlack) % kSlack;
  if (front > 0) munmap(begin, front);
  munmap(begin + front + span, kSlack - front);
  return begin + front;
}

uint64_t number_of(int file) {
  struct stat info;
  return fstat(file, &info) == 0 ? info.st_ino : 0;
}

uint32_t granules_for(uint64_t bytes) {
  const uint64_t granules = bytes / Arena::kGranule + (bytes % Arena::kGranule != 0 ? 1 : 0);
  return static_cast<uint32_t>(std::min<uint64_t>(granules, UINT32_MAX));
}

/// What a caller of free sees of the system calls in it: nothing.
class KeptErrno {
 public:
  ~KeptErrno() { errno = kept_; }

 private:
  int kept_ = errno;
};

}  // namespace

bool Arena::make() {
  if (serves()) return true;
  const Lock lock(mutex_);
  if (forked_ || tried_) return serves();
  const KeptErrno kept;
  tried_ = true;
  const uint64_t wanted = limits_.span > 0 ? limits_.span : default_span();
  return map(std::max<uint64_t>(wanted / kMostAlignment, 1) * kMostAlignment);
}

bool Arena::map(uint64_t span) {
  rlimit files;
  if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < span) {
    // Making it all the same would end the process.
    errno = EFBIG;
    return fail("a file in memory of the arena's size is more than ulimit -f allows");
  }
  rlimit addresses;
  if (limits_.span == 0 && getrlimit(RLIMIT_AS, &addresses) == 0 &&
      addresses.rlim_cur != RLIM_INFINITY) {
    errno = ENOMEM;
    return fail("addresses are limited (ulimit -v); SIRTAKI_HEAP_SPAN=BYTES says how many to take");
  }
  const int file = make_file(span);
  if (file < 0) return fail("the file in memory cannot be made");
  const auto granules = static_cast<uint32_t>(span / kGranule);
  void* const records = mmap(nullptr, Runs::bytes_for(granules), kReadWrite, kAnonymous, -1, 0);
  char* const base = records == MAP_FAILED ? nullptr : reserve(span);
  constexpr int kShared = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  if (base == nullptr || mmap(base, span, kReadWrite, kShared, file, 0) == MAP_FAILED) {
    fail("the arena's addresses cannot be had; SIRTAKI_HEAP_SPAN=BYTES makes it smaller");
    if (base != nullptr) munmap(base, span);
    if (records != MAP_FAILED) munmap(records, Runs::bytes_for(granules));
    close(file);
    return false;
  }
  madvise(base, span, MADV_HUGEPAGE);
  // A dump would have all of it, and touch every page for that.
  madvise(base, span, MADV_DONTDUMP);
  runs_.start(records, granules);
  records_ = records;
  fd_ = file;
  file_ = number_of(file);
  base_.store(base, std::memory_order_relaxed);
  span_.store(span, std::memory_order_release);
  return true;
}

bool Arena::fail(const char* what) {
  std::snprintf(why_none_.data(), why_none_.size(), "%s (%s)", what, std::strerror(errno));
  return false;
}

void Arena::unmake() {
  if (base() == nullptr) return;
  munmap(base(), span_);
  munmap(records_, Runs::bytes_for(runs_.size()));
  close(fd_);
}

void* Arena::allocate(size_t bytes, size_t alignment) {
  if (!make()) return nullptr;
  const KeptErrno kept;
  const uint32_t granules = granules_for(bytes);
  const uint32_t step = std::max(granules_for(alignment), 1U);
  const Lock lock(mutex_);
  if (forked_) return nullptr;
  const auto take = [&](State of) { return runs_.take(of, granules, step, forks_.count()); };
  auto taken = take(State::kDirty);
  if (!taken && held_ > 0) {
    give_held();
    taken = take(State::kDirty);
  }
  if (!taken) taken = take(State::kFresh);
  if (!taken && runs_.dirty() + runs_.fresh() >= granules) {
    return_dirty(true);
    taken = take(State::kFresh);
  }
  if (!taken) {
    ++fallbacks_;
    return nullptr;
  }
  count_live(granules);
  ++blocks_;
  return at(*taken);
}

void Arena::release(void* p) {
  if (p == nullptr) return;
  const KeptErrno kept;
  const Lock lock(mutex_);
  const Run* const block = block_at(p);
  if (block == nullptr) return;
  const uint32_t begin = block->begin, granules = block->granules;
  const size_t bytes = size_t{granules} * kGranule;
  count_live(-int64_t{granules});
  --blocks_;
  if (forked_) {
    // What the child wrote there goes; what the parent has there is not the child's to free.
    madvise(p, bytes, MADV_DONTNEED);
    runs_.set(begin, State::kRetired);
  } else if (block->state == State::kAbandoned) {
    if (!is_inherited(*block) && madvise(p, bytes, MADV_REMOVE) == 0) returned_ += granules;
    runs_.set(begin, State::kRetired);
  } else if (is_inherited(*block)) {
    runs_.hold(begin, forks_.count());
    held_ += granules;
  } else {
    runs_.give(begin);
    return_dirty(false);
  }
}

size_t Arena::bytes_of(const void* p) {
  const Lock lock(mutex_);
  const Run* const block = block_at(p);
  return block == nullptr ? 0 : size_t{block->granules} * kGranule;
}

/// The block of somebody that begins here: what is freed twice or in its middle is not ours to end.
const Run* Arena::block_at(const void* p) const {
  if (!contains(p)) return nullptr;
  const Run& run = runs_.of(granule_of(p));
  const bool is_block = run.state == State::kLive || run.state == State::kAbandoned;
  return is_block && at(run.begin) == p ? &run : nullptr;
}

/// Whether a fork lives that has the block, too.
bool Arena::is_inherited(const Run& block) {
  const uint32_t now = forks_.count();
  if (block.born == now) return false;
  forks_.forget_ended();
  return forks_.lives(block.born, now);
}

/// Makes dirty what was held for forks that have ended.
void Arena::give_held() {
  forks_.forget_ended();
  held_ -= runs_.give_held([this](const Run& run) { return !forks_.lives(run.born, run.freed); });
}

void Arena::count_live(int64_t granules) {
  live_ += static_cast<uint64_t>(granules);
  most_live_ = std::max(most_live_, live_);
}

/// How many dirty granules are more than is to be kept.
uint64_t Arena::too_much() const {
  // By use: a quarter more than the most that was live at once, for what does not fit together.
  const uint64_t room = most_live_ + most_live_ / 4;
  const uint64_t keep =
      limits_.keep == Limits::kByUse ? room - std::min(room, live_) : limits_.keep / kGranule;
  return runs_.dirty() - std::min(runs_.dirty(), keep);
}

/// Gives dirty pages back to the system, all of them or what is too much.
void Arena::return_dirty(bool all) {
  for (;;) {
    const uint64_t excess = all ? runs_.dirty() : too_much();
    if (excess == 0) return;
    const uint64_t whole = (excess + kReturned - 1) / kReturned * kReturned;
    const Runs::Range range =
        runs_.most_dirty(static_cast<uint32_t>(std::min<uint64_t>(whole, UINT32_MAX)));
    const size_t bytes = size_t{range.granules} * kGranule;
    if (madvise(at(range.begin), bytes, MADV_REMOVE) != 0) return;
    runs_.clean(range);
    returned_ += range.granules;
  }
}

int Arena::arena(void** base, uint64_t* span, int* fd) {
  if (!make()) return -1;
  const Lock lock(mutex_);
  if (!owns_descriptor()) return -1;
  *base = this->base();
  *span = span_;
  *fd = fd_;
  return 0;
}

bool Arena::holds(const void* p, uint64_t bytes) {
  if (!contains(p)) return false;
  const Lock lock(mutex_);
  const Run& run = runs_.of(granule_of(p));
  return !forked_ && run.state == State::kLive &&
         bytes <= static_cast<uint64_t>(at(run.end()) - static_cast<const char*>(p));
}

void Arena::abandon(const void* p, uint64_t bytes) {
  if (!contains(p) || bytes == 0) return;
  const Lock lock(mutex_);
  if (forked_) return;
  const char* const first = static_cast<const char*>(p);
  const uint64_t room = span_ - static_cast<uint64_t>(first - base());
  const uint32_t last = granule_of(first + std::min(bytes, room) - 1);
  for (uint32_t granule = granule_of(p); granule <= last; granule = runs_.of(granule).end()) {
    const Run& run = runs_.of(granule);
    if (run.state == State::kLive) runs_.set(run.begin, State::kAbandoned);
  }
}

/// Programs close descriptors that they do not know.
bool Arena::owns_descriptor() const { return file_ != 0 && number_of(fd_) == file_; }

void Arena::figures(sirtaki_heap_figures* out) {
  const Lock lock(mutex_);
  *out = {span_,
          live_ * kGranule,
          runs_.dirty() * kGranule,
          held_ * kGranule,
          returned_ * kGranule,
          blocks_,
          fallbacks_,
          forked_ ? 1U : 0U,
          has_huge_pages() ? 1U : 0U};
}

void Arena::before_fork() {
  mutex_.lock();
  if (forked_ || blocks_ == 0) return;
  const KeptErrno kept;
  forks_.before();
}

void Arena::after_fork_in_parent() {
  const KeptErrno kept;
  forks_.after_in_parent();
  mutex_.unlock();
}

void Arena::after_fork_in_child() {
  if (base() != nullptr && !forked_) {
    const KeptErrno kept;
    std::snprintf(why_none_.data(), why_none_.size(), "this process is a fork of one that has it");
    forked_ = true;
    make_private();
  }
  mutex_.unlock();
}

/// Puts a private view, which costs nothing until somebody writes, in the place of what was used.
void Arena::make_private() {
  const size_t bytes = size_t{runs_.top()} * kGranule;
  if (bytes == 0) return;
  constexpr int kPrivate = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED;
  if (owns_descriptor() && mmap(base(), bytes, kReadWrite, kPrivate, fd_, 0) != MAP_FAILED) {
    madvise(base(), bytes, MADV_DONTDUMP);
    return;
  }
  // What the child cannot have for itself it must not spoil for its parent.
  mprotect(base(), bytes, PROT_READ);
}

}  // namespace sirtaki::heap
