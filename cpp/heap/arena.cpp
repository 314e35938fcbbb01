#include "heap/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

/// A file whose size nobody can change: no other process can take pages away from under ours.
int make_file(uint64_t span) {
  int file = memfd_create("sirtaki-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  // Kernels before 6.3 do not know that flag.
  if (file < 0 && errno == EINVAL) {
    file = memfd_create("sirtaki-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
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

/// What a caller of malloc sees of the system calls in it: nothing.
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

void* Arena::allocate(size_t bytes, size_t alignment, bool* is_zero) {
  if (!make()) return nullptr;
  const uint32_t granules = granules_for(bytes);
  const uint32_t step = std::max(granules_for(alignment), 1U);
  Lock lock(mutex_);
  if (forked_) return nullptr;
  auto taken = runs_.take(granules, step);
  if (!taken && runs_.dirty() + runs_.fresh() >= granules) {
    const KeptErrno kept;
    return_dirty(lock, true);
    taken = runs_.take(granules, step);
  }
  if (!taken) {
    ++fallbacks_;
    return nullptr;
  }
  runs_.set_label(taken->at, alignment == kPlain ? 1 : 0);
  count_live(granules);
  ++blocks_;
  if (is_zero != nullptr) *is_zero = taken->fresh;
  return at(taken->at);
}

void Arena::release(void* p) {
  if (p == nullptr) return;
  const KeptErrno kept;
  Lock lock(mutex_);
  if (!is_block(p)) return;
  const uint32_t begin = granule_of(p);
  const uint32_t granules = runs_[begin].granules;
  count_live(-int64_t{granules});
  --blocks_;
  if (runs_[begin].state == State::kOwn) {
    drop_own(begin);
  } else if (forked_) {
    // What the child wrote there goes; what the parent has there is not the child's to free.
    madvise(p, size_t{granules} * kGranule, MADV_DONTNEED);
    runs_.set(begin, State::kRetired);
  } else {
    runs_.give(begin);
    if (too_much() > 0) return_dirty(lock, false);
  }
}

bool Arena::resize(void* p, size_t bytes) {
  const Lock lock(mutex_);
  if (!is_block(p)) return false;
  const uint32_t begin = granule_of(p), granules = granules_for(bytes);
  const uint32_t now = runs_[begin].granules;
  if (granules == now) return true;
  if (forked_ || runs_[begin].state != State::kLive || !runs_.resize(begin, granules)) return false;
  count_live(int64_t{granules} - int64_t{now});
  return true;
}

size_t Arena::bytes_of(const void* p) {
  const Lock lock(mutex_);
  return is_block(p) ? size_t{runs_[granule_of(p)].granules} * kGranule : 0;
}

/// Whether a block of somebody begins here: what is freed twice or in its middle is not ours to
/// end.
bool Arena::is_block(const void* p) const {
  if (!contains(p) || at(granule_of(p)) != p) return false;
  const State state = runs_[granule_of(p)].state;
  return state == State::kLive || state == State::kOwn;
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

/// Gives dirty pages back to the system, all of them or what is too much; without the lock, for it
/// takes long.
void Arena::return_dirty(Lock& lock, bool all) {
  for (;;) {
    const uint64_t excess = all ? runs_.dirty() : too_much();
    if (excess == 0) return;
    const uint64_t whole = (excess + kReturned - 1) / kReturned * kReturned;
    const Runs::Range range =
        runs_.begin_return(static_cast<uint32_t>(std::min<uint64_t>(whole, UINT32_MAX)));
    lock.release();
    const bool gone = madvise(at(range.at), size_t{range.granules} * kGranule, MADV_REMOVE) == 0;
    lock.acquire();
    runs_.end_return(range, gone ? State::kFresh : State::kDirty);
    if (!gone) return;
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
  const uint32_t begin = runs_.begin_of(granule_of(p));
  const Run& run = runs_[begin];
  const char* const end = at(begin + run.granules);
  return !forked_ && run.state == State::kLive &&
         bytes <= static_cast<uint64_t>(end - static_cast<const char*>(p));
}

void Arena::detach(void* p, uint64_t bytes) {
  if (!contains(p) || bytes == 0) return;
  const KeptErrno kept;
  const Lock lock(mutex_);
  if (forked_) return;
  const uint64_t room = span_ - static_cast<uint64_t>(static_cast<char*>(p) - base());
  const uint32_t last = granule_of(static_cast<char*>(p) + std::min(bytes, room) - 1);
  for (uint32_t begin = runs_.begin_of(granule_of(p)); begin <= last;
       begin += runs_[begin].granules) {
    if (runs_[begin].state == State::kLive && make_own(begin)) runs_.set(begin, State::kOwn);
  }
}

/// Puts a copy of a run, which is nobody else's, in its place.
bool Arena::make_own(uint32_t begin) {
  const size_t bytes = size_t{runs_[begin].granules} * kGranule;
  void* const copy = mmap(nullptr, bytes, kReadWrite, kAnonymous, -1, 0);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, at(begin), bytes);
  constexpr int kMove = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (mremap(copy, bytes, bytes, kMove, at(begin)) != MAP_FAILED) return true;
  munmap(copy, bytes);
  return false;
}

/// A run that peers may still write into is never used again; only its memory is.
void Arena::drop_own(uint32_t begin) {
  const size_t bytes = size_t{runs_[begin].granules} * kGranule;
  madvise(at(begin), bytes, MADV_DONTNEED);
  if (!forked_ && owns_descriptor()) {
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(size_t{begin} * kGranule), static_cast<off_t>(bytes));
    returned_ += runs_[begin].granules;
  }
  runs_.set(begin, State::kRetired);
}

/// Programs close descriptors that they do not know.
bool Arena::owns_descriptor() const { return file_ != 0 && number_of(fd_) == file_; }

void Arena::figures(sirtaki_heap_figures* out) {
  const Lock lock(mutex_);
  *out = {span_,   live_ * kGranule, runs_.dirty() * kGranule, returned_ * kGranule,
          blocks_, fallbacks_,       forked_ ? 1U : 0U,        has_huge_pages() ? 1U : 0U};
}

/// Whether a fork gets a copy of the run as it is now; of others it has a view.
bool Arena::is_copied(uint32_t begin) const {
  const Run& run = runs_[begin];
  return run.state == State::kLive && run.next != 0 &&
         size_t{run.granules} * kGranule <= kMostCopied;
}

void Arena::before_fork() {
  mutex_.lock();
  if (base() == nullptr || forked_) return;
  const KeptErrno kept;
  size_t bytes = 0;
  for (uint32_t at = 0; at < runs_.top(); at += runs_[at].granules) {
    if (is_copied(at)) bytes += size_t{runs_[at].granules} * kGranule;
  }
  if (bytes == 0) return;
  void* const memory = mmap(nullptr, bytes, kReadWrite, kAnonymous, -1, 0);
  if (memory == MAP_FAILED) return;
  copies_ = static_cast<char*>(memory);
  copied_ = bytes;
  char* to = copies_;
  for (uint32_t begin = 0; begin < runs_.top(); begin += runs_[begin].granules) {
    if (!is_copied(begin)) continue;
    const size_t size = size_t{runs_[begin].granules} * kGranule;
    std::memcpy(to, at(begin), size);
    to += size;
  }
}

void Arena::after_fork_in_parent() {
  if (copies_ != nullptr) munmap(copies_, copied_);
  copies_ = nullptr;
  mutex_.unlock();
}

/// Puts the copies in the places of the blocks.
void Arena::take_copies() {
  if (copies_ == nullptr) return;
  char* from = copies_;
  copies_ = nullptr;
  for (uint32_t begin = 0; begin < runs_.top(); begin += runs_[begin].granules) {
    if (!is_copied(begin)) continue;
    const size_t size = size_t{runs_[begin].granules} * kGranule;
    constexpr int kMove = MREMAP_MAYMOVE | MREMAP_FIXED;
    if (mremap(from, size, size, kMove, at(begin)) != MAP_FAILED) runs_.set(begin, State::kOwn);
    from += size;
  }
}

void Arena::after_fork_in_child() {
  if (base() != nullptr && !forked_) {
    take_copies();
    std::snprintf(why_none_.data(), why_none_.size(), "this process is a fork of one that has it");
    forked_ = true;
    uint32_t begin = 0;
    for (uint32_t at = 0; at < runs_.top(); at += runs_[at].granules) {
      // What was the parent's own is now the child's own.
      if (runs_[at].state != State::kOwn) continue;
      make_private(begin, at);
      begin = at + runs_[at].granules;
    }
    make_private(begin, runs_.top());
  }
  mutex_.unlock();
}

/// Puts a private view of the granules, which costs nothing until somebody writes, in their place.
void Arena::make_private(uint32_t begin, uint32_t end) {
  if (begin >= end) return;
  const size_t bytes = size_t{end - begin} * kGranule;
  constexpr int kPrivate = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED;
  const auto offset = static_cast<off_t>(size_t{begin} * kGranule);
  const bool known = owns_descriptor();
  if (known && mmap(at(begin), bytes, kReadWrite, kPrivate, fd_, offset) != MAP_FAILED) return;
  // What the child cannot have for itself it must not spoil for its parent.
  mprotect(at(begin), bytes, PROT_READ);
}

}  // namespace sirtaki::heap
