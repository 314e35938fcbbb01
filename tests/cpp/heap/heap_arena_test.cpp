#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "heap/arena.h"
#include "small_arena.h"

namespace sirtaki::heap {
namespace {

/// The file as another process maps it.
class Peer {
 public:
  explicit Peer(Arena& arena) {
    void* base;
    uint64_t span;
    int fd;
    REQUIRE(arena.arena(&base, &span, &fd) == 0);
    own_ = static_cast<char*>(base);
    bytes_ = span;
    mapped_ = static_cast<char*>(
        mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0));
    REQUIRE(mapped_ != MAP_FAILED);
  }
  ~Peer() { munmap(mapped_, bytes_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  char* at(const char* p) const { return mapped_ + (p - own_); }

 private:
  char* own_;
  char* mapped_;
  size_t bytes_;
};

TEST_CASE("heap arena: a block is writable, aligned and seen by whoever maps the file") {
  Small small;
  char* const p = small.allocate_filled(3 * kMiB, 7);
  const Peer peer(small.arena);
  CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
  CHECK(is_all(peer.at(p), 3 * kMiB, 7));
  std::memset(peer.at(p), 9, 3 * kMiB);
  CHECK(is_all(p, 3 * kMiB, 9));
  small.arena.release(p);
}

TEST_CASE("heap arena: blocks begin at multiples of what was asked for") {
  Small small;
  for (size_t alignment = 1; alignment <= Arena::kMostAlignment; alignment *= 2) {
    CHECK(reinterpret_cast<uintptr_t>(small.allocate(kMiB, alignment)) % alignment == 0);
  }
}

TEST_CASE("heap arena: a full one says so, counts it, and serves again when there is room") {
  Small small;
  char* const all = small.allocate(kSpan);
  REQUIRE(all != nullptr);
  CHECK(small.allocate(kMiB) == nullptr);
  CHECK(small.figures().fallbacks == 1);
  small.arena.release(all);
  CHECK(small.allocate(kMiB) != nullptr);
}

TEST_CASE("heap arena: room that is partly dirty and partly fresh is room") {
  Small small;
  small.arena.release(small.allocate_filled(kSpan / 2));
  CHECK(small.figures().kept_bytes > 0);
  char* const all = small.allocate(kSpan);
  REQUIRE(all != nullptr);
  CHECK(is_all(all, kSpan / 2, 0));
}

TEST_CASE("heap arena: more than there can be is refused") {
  Small small;
  CHECK(small.allocate(SIZE_MAX) == nullptr);
  CHECK(small.allocate(kSpan + 1) == nullptr);
}

TEST_CASE("heap arena: what is kept stays in memory, and what is more goes back as zeros") {
  Small small(4 * kMiB);
  char* const p = small.allocate_filled(16 * kMiB);
  const Peer peer(small.arena);
  small.arena.release(p);
  CHECK(small.figures().kept_bytes == 4 * kMiB);
  CHECK(small.figures().returned_bytes == 12 * kMiB);
  CHECK(is_all(peer.at(p), 4 * kMiB, 1));
  CHECK(is_all(peer.at(p) + 4 * kMiB, 12 * kMiB, 0));
}

TEST_CASE("heap arena: with nothing to keep all goes back") {
  Small small(0);
  small.arena.release(small.allocate_filled(kMiB));
  CHECK(small.figures().kept_bytes == 0);
  CHECK(small.figures().returned_bytes == kMiB);
}

TEST_CASE("heap arena: without a limit live and free together stay near the most that was live") {
  Small small;
  for (int step = 0; step < 3; ++step) {
    std::vector<char*> blocks;
    for (int each = 0; each < 8; ++each) blocks.push_back(small.allocate_filled(2 * kMiB));
    for (char* const p : blocks) small.arena.release(p);
  }
  CHECK(small.figures().kept_bytes == 16 * kMiB);
  CHECK(small.figures().returned_bytes == 0);
}

TEST_CASE("heap arena: fragments beyond a quarter more than the most live go back") {
  Small small;
  std::vector<char*> blocks;
  for (int each = 0; each < 16; ++each) blocks.push_back(small.allocate_filled(kMiB));
  for (int each = 0; each < 16; each += 2) small.arena.release(blocks[static_cast<size_t>(each)]);
  CHECK(small.figures().kept_bytes == 8 * kMiB);
  // None of the gaps holds it: live and gaps would be 24 of at most 16 MiB.
  char* const wide = small.allocate_filled(8 * kMiB);
  small.arena.release(blocks[1]);
  CHECK(small.figures().kept_bytes + small.figures().live_bytes <= 20 * kMiB);
  CHECK(small.figures().returned_bytes > 0);
  CHECK(is_all(wide, 8 * kMiB, 1));
}

TEST_CASE("heap arena: only what lies whole in one live block is held") {
  Small small;
  char* const p = small.allocate(2 * kMiB);
  char* const next = small.allocate(2 * kMiB);
  REQUIRE(next == p + 2 * kMiB);
  CHECK(small.arena.holds(p, 2 * kMiB));
  CHECK(small.arena.holds(p + 100, 10));
  CHECK(small.arena.holds(p + 2 * kMiB - 1, 1));
  CHECK_FALSE(small.arena.holds(p + 1, 2 * kMiB));
  CHECK_FALSE(small.arena.holds(p, UINT64_MAX));
  CHECK_FALSE(small.arena.holds(next + 2 * kMiB, 1));
  CHECK_FALSE(small.arena.holds(&small, 1));
  small.arena.release(p);
  CHECK_FALSE(small.arena.holds(p, 1));
}

TEST_CASE("heap arena: an abandoned block stays where it is, its owner's, and is shared no more") {
  Small small;
  char* const p = small.allocate_filled(2 * kMiB, 5);
  const Peer peer(small.arena);
  small.arena.abandon(p + kMiB, 1);
  CHECK_FALSE(small.arena.holds(p, 1));
  CHECK(small.arena.bytes_of(p) == 2 * kMiB);
  std::memset(p, 6, 1);
  CHECK(*peer.at(p) == 6);
}

TEST_CASE("heap arena: each block that the bytes touch is abandoned, and no other") {
  Small small;
  char* const a = small.allocate_filled(kMiB);
  char* const b = small.allocate_filled(kMiB);
  char* const c = small.allocate_filled(kMiB);
  small.arena.abandon(a + kMiB - 1, 2);
  CHECK_FALSE(small.arena.holds(a, 1));
  CHECK_FALSE(small.arena.holds(b, 1));
  CHECK(small.arena.holds(c, 1));
  small.arena.abandon(c, UINT64_MAX);
  CHECK_FALSE(small.arena.holds(c, 1));
}

TEST_CASE("heap arena: the place of an abandoned block is never used again, its memory goes back") {
  Small small;
  char* const p = small.allocate_filled(kMiB);
  const Peer peer(small.arena);
  small.arena.abandon(p, kMiB);
  small.arena.release(p);
  CHECK(is_all(peer.at(p), kMiB, 0));
  CHECK(small.allocate(kMiB) != p);
  CHECK(small.allocate(kSpan) == nullptr);
  CHECK(small.figures().live_bytes == kMiB);
}

TEST_CASE("heap arena: what is no block is left alone") {
  Small small;
  char* const p = small.allocate(2 * kMiB);
  small.arena.release(nullptr);
  small.arena.release(p + kMiB);
  CHECK(small.arena.holds(p, 2 * kMiB));
  small.arena.release(p);
  small.arena.release(p);
  CHECK(small.figures().live_allocations == 0);
  CHECK(small.figures().live_bytes == 0);
}

TEST_CASE("heap arena: nobody can change the size of the file") {
  Small small;
  void* base;
  uint64_t span;
  int fd;
  REQUIRE(small.arena.arena(&base, &span, &fd) == 0);
  CHECK(ftruncate(fd, 0) == -1);
  CHECK(ftruncate(fd, static_cast<off_t>(2 * span)) == -1);
}

TEST_CASE("heap arena: addresses that cannot be had are a reason, not a crash") {
  Small small(Limits::kByUse, uint64_t{1} << 62);
  CHECK(small.allocate(kMiB) == nullptr);
  CHECK(std::string(small.arena.why_none()) != "");
  CHECK_FALSE(small.arena.contains(&small));
  CHECK(small.figures().span == 0);
}

TEST_CASE("heap arena: a descriptor that the program has closed is handed to nobody") {
  Small small;
  void* base;
  uint64_t span;
  int fd;
  REQUIRE(small.arena.arena(&base, &span, &fd) == 0);
  const int kept = dup(fd);
  close(fd);
  int other = -1;
  CHECK(small.arena.arena(&base, &span, &other) == -1);
  dup2(kept, fd);
  close(kept);
  CHECK(small.arena.arena(&base, &span, &other) == 0);
}

/// One thread of the stress: every block is filled with a value of its own and checked.
void work(Arena& arena, uint32_t seed, std::atomic<int>& wrong) {
  struct Block {
    char* p;
    size_t bytes;
    char value;
  };
  std::mt19937 random(seed);
  std::vector<Block> blocks;
  const auto check = [&](const Block& block) {
    if (!is_all(block.p, block.bytes, block.value)) ++wrong;
  };
  for (int step = 0; step < 400; ++step) {
    const size_t bytes = 1 + random() % (256 << 10);
    if (random() % 2 == 0 || blocks.empty()) {
      auto* const p = static_cast<char*>(arena.allocate(bytes, 64));
      if (p == nullptr) continue;
      blocks.push_back({p, bytes, static_cast<char>(1 + random() % 100)});
      std::memset(p, blocks.back().value, bytes);
      continue;
    }
    std::swap(blocks[random() % blocks.size()], blocks.back());
    check(blocks.back());
    arena.release(blocks.back().p);
    blocks.pop_back();
  }
  for (const Block& block : blocks) {
    check(block);
    arena.release(block.p);
  }
}

TEST_CASE("heap arena: eight threads allocate and free, and each finds what it wrote") {
  // So little is kept that memory goes back all the time, and the arena is full now and then.
  Small small(kMiB, 16 * kMiB);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] { work(small.arena, seed, wrong); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(small.figures().live_bytes == 0);
  CHECK(small.figures().live_allocations == 0);
  CHECK(small.figures().kept_bytes <= kMiB);
}

}  // namespace
}  // namespace sirtaki::heap
