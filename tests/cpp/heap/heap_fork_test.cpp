#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heap/arena.h"
#include "sanitized.h"
#include "small_arena.h"

// What a process and its forks have of the blocks that both know.
namespace sirtaki::heap {
namespace {

/// Runs `child` in a fork as the handlers of a process do it; returns whether it was true.
template <typename Child>
bool in_fork(Arena& arena, Child child) {
  arena.before_fork();
  const pid_t pid = fork();
  if (pid == 0) {
    arena.after_fork_in_child();
    _exit(child() ? 0 : 1);
  }
  arena.after_fork_in_parent();
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("heap fork: what a fork writes its parent does not see, nor what it frees") {
  Small small;
  char* const p = small.allocate_filled(2 * kMiB, 5);
  CHECK(in_fork(small.arena, [&] {
    const bool inherited = is_all(p, 2 * kMiB, 5);
    std::memset(p, 9, 2 * kMiB);
    const bool written = is_all(p, 2 * kMiB, 9);
    small.arena.release(p);
    return inherited && written;
  }));
  CHECK(is_all(p, 2 * kMiB, 5));
  CHECK(small.arena.holds(p, 2 * kMiB));
}

TEST_CASE("heap fork: a fork gets no new blocks and shares none") {
  Small small;
  char* const p = small.allocate_filled(kMiB);
  CHECK(in_fork(small.arena, [&] {
    void* base;
    uint64_t span;
    int fd;
    return small.allocate(kMiB) == nullptr && small.arena.arena(&base, &span, &fd) == -1 &&
           !small.arena.holds(p, 1) && small.figures().forked == 1 &&
           std::string(small.arena.why_none()) != "";
  }));
}

TEST_CASE("heap fork: a fork of a fork is private too") {
  Small small;
  char* const p = small.allocate_filled(kMiB, 5);
  CHECK(in_fork(small.arena, [&] {
    std::memset(p, 6, kMiB);
    const bool well = in_fork(small.arena, [&] {
      const bool inherited = is_all(p, kMiB, 6);
      std::memset(p, 7, kMiB);
      return inherited;
    });
    return well && is_all(p, kMiB, 6);
  }));
  CHECK(is_all(p, kMiB, 5));
}

TEST_CASE("heap fork: a fork before the first block has an arena of its own") {
  Small small;
  CHECK(in_fork(small.arena, [&] { return small.allocate(kMiB) != nullptr; }));
}

/// A fork that lives until it is ended.
class Child {
 public:
  /// `begin`: what it does first.
  explicit Child(Arena& arena, const std::function<void()>& begin = [] {}) {
    arena.before_fork();
    pid_ = fork();
    if (pid_ == 0) {
      arena.after_fork_in_child();
      begin();
      for (;;) pause();
    }
    arena.after_fork_in_parent();
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
  pid_t pid_ = -1;
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

TEST_CASE("heap fork: what a fork inherits is not used again while it lives") {
  Small small;
  char* const p = small.allocate_filled(2 * kMiB);
  Child child(small.arena);
  small.arena.release(p);
  CHECK(small.figures().held_bytes == 2 * kMiB);
  CHECK(small.allocate(2 * kMiB) != p);
  CHECK(is_all(p, 2 * kMiB, 1));
  child.end();
  CHECK(small.allocate(2 * kMiB) == p);
  CHECK(small.figures().held_bytes == 0);
}

TEST_CASE("heap fork: what is freed after the fork has ended is used again at once") {
  Small small;
  char* const p = small.allocate_filled(kMiB);
  Child(small.arena).end();
  small.arena.release(p);
  CHECK(small.figures().held_bytes == 0);
  CHECK(small.allocate(kMiB) == p);
}

TEST_CASE("heap fork: what was freed before a fork, or allocated after it, is not kept for it") {
  Small small;
  small.allocate_filled(kMiB);
  char* const before = small.allocate_filled(kMiB);
  small.arena.release(before);
  const Child child(small.arena);
  char* const after = small.allocate_filled(kMiB);
  CHECK(after == before);
  small.arena.release(after);
  CHECK(small.figures().held_bytes == 0);
}

TEST_CASE("heap fork: a block is kept for those forks alone that were made while it lived") {
  Small small;
  char* const p = small.allocate_filled(kMiB);
  Child first(small.arena);
  small.arena.release(p);
  char* const q = small.allocate_filled(kMiB);
  const Child second(small.arena);
  first.end();
  CHECK(small.allocate(kMiB) == p);
  small.arena.release(q);
  CHECK(small.allocate(kMiB) != q);
}

TEST_CASE("heap fork: a fork of a fork keeps what it has inherited") {
  Small small;
  char* const p = small.allocate_filled(kMiB);
  Pipe told;
  CHECK(in_fork(small.arena, [&] {
    small.arena.before_fork();
    const pid_t pid = fork();
    if (pid == 0) {
      for (;;) pause();
    }
    told.write(pid);
    return true;
  }));
  const pid_t left = told.read();
  small.arena.release(p);
  CHECK(small.allocate(kMiB) != p);
  kill(left, SIGKILL);
  CHECK(told.read() == -1);
  CHECK(small.allocate(kMiB) == p);
}

TEST_CASE("heap fork: a fork that executes another program keeps nothing") {
  Small small;
  char* const p = small.allocate_filled(kMiB);
  Pipe told;
  const Child child(small.arena, [] { execlp("sleep", "sleep", "1000", nullptr); });
  CHECK(told.read() == -1);
  small.arena.release(p);
  CHECK(small.allocate(kMiB) == p);
}

TEST_CASE("heap fork: of more forks than can be told apart the last one counts" *
          doctest::test_suite(testing::kSlowSanitized)) {
  Small small;
  char* const p = small.allocate_filled(kMiB);
  std::vector<std::unique_ptr<Child>> children;
  for (int each = 0; each < 70; ++each) children.push_back(std::make_unique<Child>(small.arena));
  small.arena.release(p);
  for (int each = 0; each < 69; ++each) children[static_cast<size_t>(each)]->end();
  CHECK(small.allocate(kMiB) != p);
  children.back()->end();
  CHECK(small.allocate(kMiB) == p);
}

TEST_CASE("heap fork: a full arena serves again when the fork has ended") {
  Small small;
  char* const all = small.allocate(kSpan);
  Child child(small.arena);
  small.arena.release(all);
  CHECK(small.allocate(kMiB) == nullptr);
  child.end();
  CHECK(small.allocate(kSpan) == all);
}

TEST_CASE("heap fork: an abandoned block that a fork has keeps its contents, and its place") {
  Small small;
  char* const p = small.allocate_filled(kMiB, 5);
  Child child(small.arena);
  small.arena.abandon(p, kMiB);
  small.arena.release(p);
  CHECK(is_all(p, kMiB, 5));
  child.end();
  CHECK(small.allocate(kMiB) != p);
}

}  // namespace
}  // namespace sirtaki::heap
