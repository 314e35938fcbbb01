#include "heap/forks.h"

#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include <algorithm>

namespace sirtaki::heap {
namespace {

constexpr size_t kPage = 1;  // the system rounds it up

/// A page that goes with the last who has it; null: there is none.
void* make_page(int& id) {
  id = shmget(IPC_PRIVATE, kPage, IPC_CREAT | 0600);
  if (id < 0) return nullptr;
  void* const page = shmat(id, nullptr, SHM_RDONLY);
  shmctl(id, IPC_RMID, nullptr);
  return page == reinterpret_cast<void*>(-1) ? nullptr : page;
}

/// Whether no other process has it.
bool is_own(int id) {
  shmid_ds found;
  return shmctl(id, IPC_STAT, &found) == 0 && found.shm_nattch == 1;
}

}  // namespace

void Forks::before() {
  forget_ended();
  ++count_;
  if (size_ < kMost) {
    int id = -1;
    void* const page = make_page(id);
    if (page != nullptr || size_ == 0) {
      living_[size_++] = {count_, count_, id, page};
      return;
    }
  }
  Fork& shared = living_[size_ - 1];
  shared.last = count_;
  if (shared.page != nullptr) madvise(shared.page, kPage, MADV_DOFORK);
}

/// The forks that follow do not inherit it.
void Forks::after_in_parent() {
  if (size_ == 0) return;
  const Fork& latest = living_[size_ - 1];
  if (latest.page != nullptr) madvise(latest.page, kPage, MADV_DONTFORK);
}

void Forks::forget_ended() {
  size_t kept = 0;
  for (size_t at = 0; at < size_; ++at) {
    const Fork& fork = living_[at];
    if (fork.page != nullptr && is_own(fork.id)) {
      shmdt(fork.page);
    } else {
      living_[kept++] = fork;
    }
  }
  size_ = kept;
}

bool Forks::lives(uint32_t from, uint32_t to) const {
  return std::any_of(living_.begin(), living_.begin() + size_,
                     [&](const Fork& fork) { return fork.last > from && fork.first <= to; });
}

}  // namespace sirtaki::heap
