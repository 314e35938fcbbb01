#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "base/error.h"

namespace sirtaki {

/// Knows whether this process was forked since the mark was made, at the price of reading memory:
/// the kernel gives a child zeros in place of the page.
class ForkMark {
 public:
  ForkMark() {
    void* page = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::bad_alloc();
    mark_ = new (page) std::atomic<int>(1);
    if (madvise(page, kBytes, MADV_WIPEONFORK) == 0) return;
    const std::string why = std::strerror(errno);
    munmap(page, kBytes);
    throw Error(ErrorCode::kInternal, "the kernel does not mark forked processes: " + why);
  }
  ~ForkMark() { munmap(mark_, kBytes); }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  bool forked() const { return mark_->load(std::memory_order_relaxed) == 0; }

 private:
  static constexpr size_t kBytes = 4096;  // rounded up to a page by the kernel

  std::atomic<int>* mark_;
};

}  // namespace sirtaki
