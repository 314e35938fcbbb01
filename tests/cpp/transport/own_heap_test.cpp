#include "transport/heaps/own_heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "doctest/doctest.h"

// Blocks that the other ranks of the host can map, and what forks of their process have of them.
namespace sirtaki {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kSpan = 64 * kMiB;

std::byte* filled(OwnHeap& heap, size_t bytes, int with = 1) {
  std::byte* const p = heap.allocate(bytes);
  REQUIRE(p != nullptr);
  std::memset(p, with, bytes);
  return p;
}

bool is_all(const std::byte* p, size_t bytes, int value) {
  return std::all_of(p, p + bytes, [value](std::byte each) { return each == std::byte(value); });
}

/// The file as another process maps it.
class Peer {
 public:
  explicit Peer(OwnHeap& heap) : file_(heap.file().value()) {
    void* const mapped =
        mmap(nullptr, file_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd, 0);
    REQUIRE(mapped != MAP_FAILED);
    mapped_ = static_cast<std::byte*>(mapped);
  }
  ~Peer() { munmap(mapped_, file_.bytes); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  std::byte* at(const std::byte* p) const { return mapped_ + (p - file_.base); }

 private:
  OwnHeap::File file_;
  std::byte* mapped_;
};

TEST_CASE("own heap: a block is writable, aligned and seen by whoever maps the file") {
  OwnHeap heap(kSpan);
  std::byte* const p = filled(heap, 3 * kMiB, 7);
  const Peer peer(heap);
  CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
  CHECK(is_all(peer.at(p), 3 * kMiB, 7));
  std::memset(peer.at(p), 9, 3 * kMiB);
  CHECK(is_all(p, 3 * kMiB, 9));
}

TEST_CASE("own heap: a full one says so, and serves again when there is room") {
  OwnHeap heap(kSpan);
  std::byte* const all = heap.allocate(kSpan);
  REQUIRE(all != nullptr);
  CHECK(heap.allocate(1) == nullptr);
  heap.release(all);
  CHECK(heap.allocate(kSpan) == all);
}

TEST_CASE("own heap: more than there can be, and nothing, get no block") {
  OwnHeap heap(kSpan);
  CHECK(heap.allocate(0) == nullptr);
  CHECK(heap.allocate(UINT64_MAX) == nullptr);
  CHECK(heap.allocate(kSpan + 1) == nullptr);
}

TEST_CASE("own heap: a gap is used again, and what does not fit goes behind it") {
  OwnHeap heap(kSpan);
  std::byte* const a = heap.allocate(2 * kMiB);
  std::byte* const b = heap.allocate(kMiB);
  heap.release(a);
  CHECK(heap.allocate(3 * kMiB) == b + kMiB);
  CHECK(heap.allocate(2 * kMiB) == a);
}

TEST_CASE("own heap: memory goes back beyond the most that was live at once") {
  OwnHeap heap(kSpan);
  std::vector<std::byte*> blocks;
  for (int each = 0; each < 4; ++each) blocks.push_back(filled(heap, kMiB));
  const Peer peer(heap);
  heap.release(blocks[0]);
  CHECK(is_all(peer.at(blocks[0]), kMiB, 1));
  // The gap does not hold it, so five of at most 4 + 1 MiB are in use.
  std::byte* const wide = filled(heap, 2 * kMiB);
  heap.release(wide);
  CHECK(is_all(peer.at(wide) + kMiB, kMiB, 0));
}

TEST_CASE("own heap: only what lies whole in one live block is held") {
  OwnHeap heap(kSpan);
  std::byte* const p = heap.allocate(2 * kMiB);
  std::byte* const next = heap.allocate(2 * kMiB);
  REQUIRE(next == p + 2 * kMiB);
  CHECK(heap.holds(p, 2 * kMiB));
  CHECK(heap.holds(p + 100, 10));
  CHECK(heap.holds(p + 2 * kMiB - 1, 1));
  CHECK_FALSE(heap.holds(p + 1, 2 * kMiB));
  CHECK_FALSE(heap.holds(p, UINT64_MAX));
  CHECK_FALSE(heap.holds(next + 2 * kMiB, 1));
  CHECK_FALSE(heap.holds(reinterpret_cast<const std::byte*>(&heap), 1));
  heap.release(p);
  CHECK_FALSE(heap.holds(p, 1));
}

TEST_CASE("own heap: each block that the bytes touch is abandoned, and stays its owner's") {
  OwnHeap heap(kSpan);
  std::byte* const a = filled(heap, kMiB, 5);
  std::byte* const b = filled(heap, kMiB);
  std::byte* const c = filled(heap, kMiB);
  const Peer peer(heap);
  heap.abandon(a + kMiB - 1, 2);
  CHECK_FALSE(heap.holds(a, 1));
  CHECK_FALSE(heap.holds(b, 1));
  CHECK(heap.holds(c, 1));
  CHECK(is_all(peer.at(a), kMiB, 5));
}

TEST_CASE("own heap: the place of an abandoned block is never used again, its memory goes back") {
  OwnHeap heap(kSpan);
  std::byte* const p = filled(heap, kMiB);
  const Peer peer(heap);
  heap.abandon(p, kMiB);
  heap.release(p);
  CHECK(is_all(peer.at(p), kMiB, 0));
  CHECK(heap.allocate(kMiB) != p);
  CHECK(heap.allocate(kSpan) == nullptr);
}

TEST_CASE("own heap: nobody can change the size of the file") {
  OwnHeap heap(kSpan);
  CHECK(ftruncate(heap.file()->fd, 0) == -1);
  CHECK(ftruncate(heap.file()->fd, static_cast<off_t>(2 * kSpan)) == -1);
}

TEST_CASE("own heap: addresses that cannot be had are a reason, not a crash") {
  OwnHeap heap(uint64_t{1} << 62);
  CHECK(heap.allocate(kMiB) == nullptr);
  CHECK_FALSE(heap.why_none().empty());
  CHECK_FALSE(heap.file().has_value());
}

TEST_CASE("own heap: a descriptor that the program has closed is handed to nobody") {
  OwnHeap heap(kSpan);
  const int fd = heap.file()->fd;
  const int kept = dup(fd);
  close(fd);
  CHECK_FALSE(heap.file().has_value());
  dup2(kept, fd);
  close(kept);
  CHECK(heap.file().has_value());
}

/// One thread of the stress: every block is filled with a value of its own and checked.
void work(OwnHeap& heap, uint32_t seed, std::atomic<int>& wrong) {
  struct Block {
    std::byte* p;
    size_t bytes;
    int value;
  };
  std::mt19937 random(seed);
  std::vector<Block> blocks;
  for (int step = 0; step < 400; ++step) {
    const size_t bytes = 1 + random() % (256 << 10);
    std::byte* const p = random() % 2 == 0 || blocks.empty() ? heap.allocate(bytes) : nullptr;
    if (p != nullptr) {
      blocks.push_back({p, bytes, static_cast<int>(1 + random() % 100)});
      std::memset(p, blocks.back().value, bytes);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      if (!is_all(blocks.back().p, blocks.back().bytes, blocks.back().value)) ++wrong;
      heap.release(blocks.back().p);
      blocks.pop_back();
    }
  }
}

TEST_CASE("own heap: eight threads allocate and free, and each finds what it wrote") {
  OwnHeap heap(16 * kMiB);  // full now and then
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] { work(heap, seed, wrong); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

/// Forks as a process with these handlers does.
pid_t fork_of(OwnHeap& heap) {
  heap.before_fork();
  const pid_t pid = fork();
  if (pid == 0) {
    heap.after_fork_in_child();
  } else {
    heap.after_fork_in_parent();
  }
  return pid;
}

/// Runs `child` in a fork; returns whether it was true.
template <typename Child>
bool in_fork(OwnHeap& heap, Child child) {
  const pid_t pid = fork_of(heap);
  if (pid == 0) _exit(child() ? 0 : 1);
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("own heap: what a fork writes its parent does not see, nor what it frees") {
  OwnHeap heap(kSpan);
  std::byte* const p = filled(heap, 2 * kMiB, 5);
  CHECK(in_fork(heap, [&] {
    const bool inherited = is_all(p, 2 * kMiB, 5);
    std::memset(p, 9, 2 * kMiB);
    const bool written = is_all(p, 2 * kMiB, 9);
    heap.release(p);
    return inherited && written;
  }));
  CHECK(is_all(p, 2 * kMiB, 5));
  CHECK(heap.holds(p, 2 * kMiB));
}

TEST_CASE("own heap: a fork gets no new blocks and shares none") {
  OwnHeap heap(kSpan);
  std::byte* const p = filled(heap, kMiB);
  CHECK(in_fork(heap, [&] {
    return heap.allocate(kMiB) == nullptr && !heap.file().has_value() && !heap.holds(p, 1);
  }));
}

TEST_CASE("own heap: a fork of a fork is private too") {
  OwnHeap heap(kSpan);
  std::byte* const p = filled(heap, kMiB, 5);
  CHECK(in_fork(heap, [&] {
    std::memset(p, 6, kMiB);
    const bool well = in_fork(heap, [&] {
      const bool inherited = is_all(p, kMiB, 6);
      std::memset(p, 7, kMiB);
      return inherited;
    });
    return well && is_all(p, kMiB, 6);
  }));
  CHECK(is_all(p, kMiB, 5));
}

/// A fork that lives until it is ended.
class Child {
 public:
  /// `begin`: what it does first.
  explicit Child(OwnHeap& heap, const std::function<void()>& begin = [] {}) : pid_(fork_of(heap)) {
    if (pid_ != 0) return;
    begin();
    for (;;) pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

/// Both ends are closed by whoever executes another program.
class Pipe {
 public:
  Pipe() { REQUIRE(pipe2(ends_.data(), O_CLOEXEC) == 0); }
  ~Pipe() {
    close(ends_[0]);
    if (open_) close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void write(pid_t value) const {
    if (::write(ends_[1], &value, sizeof value) != sizeof value) _exit(1);
  }
  /// -1: nobody has the other end any more. From now on this process has it not.
  pid_t read() {
    if (open_) close(ends_[1]);
    open_ = false;
    pid_t value = -1;
    return ::read(ends_[0], &value, sizeof value) == sizeof value ? value : -1;
  }

 private:
  std::array<int, 2> ends_{};
  bool open_ = true;
};

TEST_CASE("own heap: what a fork inherits is not used again while it lives") {
  OwnHeap heap(kSpan);
  std::byte* const p = filled(heap, 2 * kMiB);
  Child child(heap);
  heap.release(p);
  CHECK(heap.allocate(2 * kMiB) != p);
  CHECK(is_all(p, 2 * kMiB, 1));
  child.end();
  CHECK(heap.allocate(2 * kMiB) == p);
}

TEST_CASE("own heap: what was freed before a fork, or allocated after it, is not kept for it") {
  OwnHeap heap(kSpan);
  filled(heap, kMiB);
  std::byte* const before = filled(heap, kMiB);
  heap.release(before);
  const Child child(heap);
  for (int each = 0; each < 2; ++each) {
    std::byte* const after = heap.allocate(kMiB);
    CHECK(after == before);
    heap.release(after);
  }
}

TEST_CASE("own heap: a fork of a fork keeps what it has inherited") {
  OwnHeap heap(kSpan);
  std::byte* const p = filled(heap, kMiB);
  Pipe told;
  CHECK(in_fork(heap, [&] {
    const pid_t pid = fork_of(heap);
    if (pid == 0) {
      for (;;) pause();
    }
    told.write(pid);
    return true;
  }));
  const pid_t left = told.read();
  heap.release(p);
  CHECK(heap.allocate(kMiB) != p);
  kill(left, SIGKILL);
  CHECK(told.read() == -1);
  CHECK(heap.allocate(kMiB) == p);
}

TEST_CASE("own heap: a fork that executes another program keeps nothing") {
  OwnHeap heap(kSpan);
  std::byte* const p = filled(heap, kMiB);
  Pipe told;
  const Child child(heap, [] { execlp("sleep", "sleep", "1000", nullptr); });
  CHECK(told.read() == -1);
  heap.release(p);
  CHECK(heap.allocate(kMiB) == p);
}

TEST_CASE("own heap: an abandoned block that a fork has keeps its contents, and its place") {
  OwnHeap heap(kSpan);
  std::byte* const p = filled(heap, kMiB, 5);
  Child child(heap);
  heap.abandon(p, kMiB);
  heap.release(p);
  CHECK(is_all(p, kMiB, 5));
  child.end();
  CHECK(heap.allocate(kMiB) != p);
}

}  // namespace
}  // namespace sirtaki
