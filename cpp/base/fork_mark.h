#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace sirtaki {

/// Detects whether this process was forked since the mark was made, by a mere read of memory: the
/// kernel gives a child zeros in place of the page. Where it cannot, process IDs are compared.
class ForkMark {
 public:
  ForkMark() {
    void* page = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::bad_alloc();
    mark_ = new (page) std::atomic<int>(1);
    if (madvise(page, kBytes, MADV_WIPEONFORK) != 0) process_ = getpid();
  }
  ~ForkMark() { munmap(mark_, kBytes); }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  bool forked() const {
    if (process_ != 0) return getpid() != process_;
    return mark_->load(std::memory_order_relaxed) == 0;
  }

 private:
  static constexpr size_t kBytes = 4096;  // rounded up to a page by the kernel

  std::atomic<int>* mark_;
  pid_t process_ = 0;  ///< 0: the page shows it
};

}  // namespace sirtaki
