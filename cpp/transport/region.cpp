#include "transport/region.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace sirtaki {
namespace {

constexpr size_t kPage = 4096;

size_t page_align(size_t offset) { return (offset + kPage - 1) / kPage * kPage; }

}  // namespace

Region::Layout::Layout(int rank_count) {
  const auto n = static_cast<size_t>(rank_count);
  leader = alignof(LeaderBlock);  // behind Abort, on its page
  ranks = page_align(leader + sizeof(LeaderBlock));
  up = page_align(ranks + n * sizeof(RankBlock));
  down = page_align(up + n * sizeof(ByteRing));
  sets = page_align(down + n * sizeof(ByteRing));
  slots = page_align(sets + kMaxSets * n * sizeof(Counters));
  total = page_align(slots + n * kSlotBytes);
}

size_t Region::bytes(int ranks) { return Layout(ranks).total; }

std::shared_ptr<Region> Region::map(Fd memfd, int ranks) {
  struct stat info{};
  if (fstat(memfd.get(), &info) != 0 || static_cast<size_t>(info.st_size) < bytes(ranks)) {
    throw Error(ErrorCode::kInternal,
                "shared memory is smaller than " + std::to_string(bytes(ranks)) + " bytes for " +
                    std::to_string(ranks) + " ranks: do all ranks run the same version?");
  }
  return std::shared_ptr<Region>(new Region(memfd.get(), ranks));
}

std::shared_ptr<Region> Region::anonymous(int ranks) {
  return std::shared_ptr<Region>(new Region(-1, ranks));
}

Region::Region(int fd, int ranks) : layout_(ranks), ranks_(ranks) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, layout_.total, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::kInternal, "cannot map " + std::to_string(layout_.total) +
                                          " bytes of shared memory: " + std::strerror(errno));
  }
  base_ = static_cast<std::byte*>(memory);
}

Region::~Region() { munmap(base_, layout_.total); }

}  // namespace sirtaki
