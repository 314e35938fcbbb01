#include "transport/heaps/peer_heaps.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

namespace sirtaki {
namespace {

/// Whether nobody can truncate memory that others have mapped: they would end with SIGBUS.
bool is_whole(int fd, uint64_t bytes) {
  struct stat info{};
  if (fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) < bytes) return false;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

std::optional<OwnHeap::File> file_of(OwnHeap* own) {
  return own == nullptr ? std::nullopt : own->file();
}

}  // namespace

PeerHeaps::PeerHeaps(OwnHeap* own, int place, std::vector<HeapMemory> memory)
    : own_(own), place_(place) {
  for (HeapMemory& one : memory) heaps_.push_back({std::move(one.fd), one.bytes, nullptr, false});
  Heap& mine = heaps_[static_cast<size_t>(place)];
  const auto file = file_of(own);
  mine.base = file ? file->base : nullptr;
  mine.refused = !file;
}

std::shared_ptr<PeerHeaps> PeerHeaps::in_process(OwnHeap* own, int place, int ranks) {
  std::vector<HeapMemory> none(static_cast<size_t>(ranks));
  auto heaps = std::make_shared<PeerHeaps>(own, place, std::move(none));
  const auto file = file_of(own);
  if (!file) return heaps;
  for (Heap& heap : heaps->heaps_) {
    heap.base = file->base;
    heap.bytes = file->bytes;
  }
  return heaps;
}

PeerHeaps::~PeerHeaps() {
  if (mark_.forked()) return;  // it did not inherit the mappings, and may have others there
  for (const Heap& heap : heaps_) {
    if (heap.fd.get() >= 0 && heap.base != nullptr) munmap(heap.base, heap.bytes);
  }
}

std::byte* PeerHeaps::base(int place) {
  Heap& heap = heaps_[static_cast<size_t>(place)];
  if (heap.base == nullptr && !heap.refused && heap.bytes > 0) map(heap);
  return heap.base;
}

void PeerHeaps::map(Heap& heap) const {
  heap.refused = true;
  if (!is_whole(heap.fd.get(), heap.bytes)) return;
  void* memory = mmap(nullptr, heap.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      heap.fd.get(), 0);
  if (memory == MAP_FAILED) return;
  // A forked child does not need it, and in a core dump the own heap is enough.
  madvise(memory, heap.bytes, MADV_DONTFORK);
  madvise(memory, heap.bytes, MADV_DONTDUMP);
  heap.base = static_cast<std::byte*>(memory);
}

std::optional<uint64_t> PeerHeaps::offset_of(const std::byte* data, size_t bytes) const {
  const Heap& own = heap(place_);
  if (own.bytes == 0 || own.base == nullptr || !own_->holds(data, bytes)) return std::nullopt;
  return static_cast<uint64_t>(data - own.base);
}

void PeerHeaps::count(uint64_t bytes) {
  operations_.fetch_add(1, std::memory_order_relaxed);
  moved_.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace sirtaki
