#include "transport/memory/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/utf8.h"

namespace sirtaki {
namespace {

constexpr size_t kPage = 4096;

size_t page_align(size_t offset) { return (offset + kPage - 1) / kPage * kPage; }

/// The approximate size of all rings of a rank, unless that is below the minimum for each.
constexpr size_t kPairBytes = 1 << 20;
constexpr size_t kLeastRing = 4 << 10;
constexpr size_t kMostRing = 64 << 10;

uint32_t pair_ring_bytes(int ranks) {
  const size_t share = std::bit_floor(kPairBytes / static_cast<size_t>(ranks));
  return static_cast<uint32_t>(std::clamp(share, kLeastRing, kMostRing));
}

}  // namespace

Region::Layout::Layout(int rank_count) {
  const auto n = static_cast<size_t>(rank_count);
  leader = alignof(LeaderBlock);  // after Abort, on its page
  ranks = page_align(leader + sizeof(LeaderBlock));
  up = page_align(ranks + n * sizeof(RankBlock));
  down = page_align(up + n * kControlRing);
  pairs = page_align(down + n * kControlRing);
  pair_flags = pairs + n * sizeof(PairBlock);
  pair_rings = page_align(pair_flags + n * (((n + 63) / 64 * sizeof(uint64_t) + 127) / 128 * 128));
  const size_t ring = sizeof(ByteRing::Positions) + pair_ring_bytes(rank_count);
  sets = page_align(pair_rings + n * (n - 1) * ring);
  records = page_align(sets + kMaxSets * n * sizeof(Counters));
  slots = page_align(records + n * kAllRecords * sizeof(FlightRecord));
  static_assert(kSlotBytes % kPage == 0);
  total = slots + n * kSlotBytes;
}

std::shared_ptr<Region> Region::map(Fd memfd, int ranks, EventDescriptors event_descriptors) {
  struct stat info{};
  if (fstat(memfd.get(), &info) != 0 || static_cast<size_t>(info.st_size) < bytes(ranks)) {
    throw Error(ErrorCode::kInternal,
                "shared memory is smaller than " + std::to_string(bytes(ranks)) + " bytes for " +
                    std::to_string(ranks) + " ranks: do all ranks run the same version?");
  }
  // If another process truncates the memory, its readers end with SIGBUS.
  constexpr int kWanted = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kWanted) != kWanted) {
    throw Error(ErrorCode::kInternal,
                "shared memory is not sealed against a change of its size: do all ranks run the "
                "same version?");
  }
  return std::shared_ptr<Region>(new Region(memfd.get(), ranks, std::move(event_descriptors)));
}

std::shared_ptr<Region> Region::anonymous(int ranks) {
  return std::shared_ptr<Region>(new Region(-1, ranks, EventDescriptors::make(ranks)));
}

Region::Region(int fd, int ranks, EventDescriptors event_descriptors)
    : layout_(ranks), ranks_(ranks), event_descriptors_(std::move(event_descriptors)) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, layout_.total, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::kInternal, "cannot map " + std::to_string(layout_.total) +
                                          " bytes of shared memory: " + std::strerror(errno));
  }
  base_ = static_cast<std::byte*>(memory);
}

Region::~Region() { munmap(base_, layout_.total); }

void Region::clear() {
  // Nothing follows the slots. Pages that go back to the kernel read as zeros, and untouched ones
  // still cost nothing.
  if (madvise(base_, layout_.slots, MADV_REMOVE) != 0) std::memset(base_, 0, layout_.slots);
}

ByteRing Region::pair_ring(int from, int to, RingEnd end) const {
  const auto column = static_cast<size_t>(from < to ? from : from - 1);  // none to itself
  const size_t index = static_cast<size_t>(to) * static_cast<size_t>(ranks_ - 1) + column;
  const uint32_t bytes = pair_ring_bytes(ranks_);
  const size_t each = sizeof(ByteRing::Positions) + bytes;
  return {*at<ByteRing::Positions>(layout_.pair_rings + index * each), bytes, end};
}

Loss Region::loss() const {
  const uint64_t said = at<Abort>(0)->lost.load(std::memory_order_acquire);
  // Other processes can write here, so the index must stay within bounds.
  const RankBlock& block = rank(static_cast<int>((said >> 32) % static_cast<uint64_t>(ranks_)));
  const size_t length = strnlen(block.loss_reason, sizeof block.loss_reason);
  const bool late = block.loss_code == static_cast<int32_t>(ErrorCode::kTimeout);
  // The text may have been cut in the middle of a character.
  return {lost_rank(), block.loss_reporter, valid_utf8({block.loss_reason, length}),
          late ? ErrorCode::kTimeout : ErrorCode::kPeerLost};
}

void Region::set_loss(int place, const Loss& loss) {
  const std::lock_guard lock(loss_mutex_);
  // A published loss must not change while others read it.
  if (lost_rank() >= 0) return;
  RankBlock& block = rank(place);
  block.loss_reporter = loss.reporter;
  block.loss_code = static_cast<int32_t>(loss.code);
  block.loss_reason[loss.reason.copy(block.loss_reason, sizeof block.loss_reason - 1)] = 0;
  const uint64_t said = static_cast<uint64_t>(place) << 32 | static_cast<uint32_t>(loss.rank + 1);
  std::atomic<uint64_t>& lost = at<Abort>(0)->lost;
  uint64_t seen = lost.load();
  // A nonzero value that names no rank was not written by a rank.
  while (lost_rank_in(seen) < 0 && !lost.compare_exchange_weak(seen, said)) {
  }
}

}  // namespace sirtaki
