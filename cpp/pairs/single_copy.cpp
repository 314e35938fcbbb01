#include "pairs/single_copy.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <utility>

namespace sirtaki {
namespace {

iovec remote(uint64_t address, size_t bytes) { return {reinterpret_cast<void*>(address), bytes}; }

}  // namespace

SingleCopy::SingleCopy(std::shared_ptr<Region> region, int place)
    : region_(std::move(region)),
      cookie_(std::make_unique<Cookie>()),
      known_(static_cast<size_t>(region_->ranks())) {
  PairBlock& own = region_->pair_block(place);
  // Without a random cookie no peer may read here. glibc has this function only since 2.25.
  if (syscall(SYS_getrandom, cookie_->data(), sizeof(Cookie), 0) != sizeof(Cookie)) return;
  own.cookie = *cookie_;
  own.cookie_address = reinterpret_cast<uint64_t>(cookie_.get());
  own.process = getpid();
}

/// Checks the cookie alone first: no bytes of another process may reach a caller's memory.
bool SingleCopy::knows(int place) {
  if (known_[static_cast<size_t>(place)]) return true;
  const PairBlock& block = region_->pair_block(place);
  if (block.process <= 0) return false;
  Cookie seen{};
  const iovec to{seen.data(), sizeof seen};
  const iovec from = remote(block.cookie_address, sizeof seen);
  if (process_vm_readv(block.process, &to, 1, &from, 1, 0) != sizeof seen) return false;
  const Cookie none{};
  known_[static_cast<size_t>(place)] = seen == block.cookie && seen != none;
  return known_[static_cast<size_t>(place)];
}

size_t SingleCopy::copy(int place, uint64_t address, std::byte* to, size_t bytes) {
  if (!knows(place)) return 0;
  const PairBlock& block = region_->pair_block(place);
  // Another process may have taken the process ID meanwhile.
  Cookie seen{};
  const iovec into[2] = {{seen.data(), sizeof seen}, {to, bytes}};
  const iovec from[2] = {remote(block.cookie_address, sizeof seen), remote(address, bytes)};
  const ssize_t got = process_vm_readv(block.process, into, 2, from, 2, 0);
  if (got <= static_cast<ssize_t>(sizeof seen) || seen != block.cookie) return 0;
  return static_cast<size_t>(got) - sizeof seen;
}

}  // namespace sirtaki
