#include "transport/heaps/peer_heaps.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "test_heap.h"

namespace sirtaki {
namespace {

using testing::TestHeap;

constexpr size_t kHeapBytes = 1 << 20;

Fd memory_file(size_t bytes, int seals) {
  Fd fd(memfd_create("heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

/// What the rank at place 0 of two has, if the other one has handed over this.
std::unique_ptr<PeerHeaps> with(Fd fd, uint64_t bytes = kHeapBytes) {
  std::vector<HeapMemory> memory(2);
  memory[0].bytes = TestHeap::kSpan;
  memory[1] = {std::move(fd), bytes};
  return std::make_unique<PeerHeaps>(TestHeap::get().own(), 0, std::move(memory));
}

TEST_CASE("the heap of another rank is memory that both see") {
  Fd fd = memory_file(kHeapBytes, F_SEAL_SHRINK);
  REQUIRE(pwrite(fd.get(), "seen", 4, kHeapBytes - 4) == 4);
  const auto heaps = with(std::move(fd));
  CHECK(heaps->has(1));
  CHECK(std::memcmp(heaps->base(1) + kHeapBytes - 4, "seen", 4) == 0);
}

TEST_CASE("memory that its rank could cut off is not mapped") {
  CHECK(with(memory_file(kHeapBytes, 0))->base(1) == nullptr);
}

TEST_CASE("memory shorter than its rank says is not mapped") {
  CHECK(with(memory_file(kHeapBytes, F_SEAL_SHRINK), 2 * kHeapBytes)->base(1) == nullptr);
}

TEST_CASE("a rank that has handed over nothing has no heap") {
  const auto heaps = with(Fd(), 0);
  CHECK(!heaps->has(1));
  CHECK(heaps->base(1) == nullptr);
}

TEST_CASE("a fork unmaps nothing of its own where its parent had another rank's heap") {
  auto heaps = with(memory_file(kHeapBytes, F_SEAL_SHRINK));
  std::byte* const base = heaps->base(1);
  REQUIRE(base != nullptr);
  const pid_t child = fork();
  if (child == 0) {
    void* own = mmap(base, kHeapBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (own != base) _exit(1);  // the heap was inherited
    heaps.reset();
    *base = std::byte{1};  // SIGSEGV if it is no longer there
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace sirtaki
