#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

#include "heap/runs.h"
#include "sanitized.h"

namespace sirtaki::heap {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

/// Runs over memory of their own.
class Book {
 public:
  explicit Book(uint32_t granules) : memory_(Runs::bytes_for(granules) / sizeof(uint64_t) + 1) {
    runs.start(memory_.data(), granules);
  }

  uint32_t take(uint32_t granules, uint32_t alignment = 1) {
    auto taken = runs.take(State::kDirty, granules, alignment, born);
    if (!taken) taken = runs.take(State::kFresh, granules, alignment, born);
    return taken.value_or(kNone);
  }
  void return_all() {
    while (runs.dirty() > 0) runs.clean(runs.most_dirty(kNone));
  }

 private:
  std::vector<uint64_t> memory_;

 public:
  Runs runs;
  uint32_t born = 0;
};

/// The runs by their beginnings, as a walk over all of them finds them.
std::map<uint32_t, Run> walk(const Runs& runs) {
  std::map<uint32_t, Run> found;
  for (uint32_t at = 0; at < runs.size(); at = runs.of(at).end()) found[at] = runs.of(at);
  return found;
}

TEST_CASE("heap runs: what was freed is used again before fresh granules are") {
  Book book(1000);
  const uint32_t first = book.take(20), second = book.take(20);
  book.runs.give(first);
  CHECK(book.take(20) == first);
  CHECK(book.take(20) > second);
}

TEST_CASE("heap runs: the tightest of the dirty runs is taken") {
  Book book(1000);
  const uint32_t wide = book.take(40);
  book.take(1);
  const uint32_t tight = book.take(35);
  book.take(1);
  book.runs.give(wide);
  book.runs.give(tight);
  CHECK(book.take(34) == tight);
}

TEST_CASE("heap runs: dirty neighbours become one run") {
  Book book(60);
  const uint32_t a = book.take(20), b = book.take(20), c = book.take(20);
  book.runs.give(a);
  book.runs.give(c);
  CHECK(book.take(60) == kNone);
  book.runs.give(b);
  CHECK(book.take(60) == a);
}

TEST_CASE("heap runs: no run is fresh in one part and dirty in another") {
  Book book(60);
  book.runs.give(book.take(30));
  CHECK(book.take(40) == kNone);
  book.return_all();
  CHECK(book.take(40) == 0);
}

TEST_CASE("heap runs: granules never used, and those given back, are fresh") {
  Book book(100);
  CHECK_FALSE(book.runs.take(State::kDirty, 1, 1, 0));
  book.runs.give(book.take(10));
  CHECK_FALSE(book.runs.take(State::kFresh, 91, 1, 0));
  book.return_all();
  CHECK(book.runs.take(State::kFresh, 100, 1, 0));
}

TEST_CASE("heap runs: what is held is used for nothing until it is over") {
  Book book(100);
  book.born = 3;
  const uint32_t wall = book.take(10), held = book.take(80);
  book.runs.hold(held, 5);
  CHECK(book.take(20) == kNone);
  CHECK(book.runs.give_held([](const Run& run) { return run.born != 3; }) == 0);
  CHECK(book.runs.give_held([](const Run& run) { return run.freed == 5; }) == 80);
  CHECK(book.take(80) == held);
  CHECK(wall == 0);
}

TEST_CASE("heap runs: held neighbours that are over become one run with what is dirty around") {
  Book book(50);
  for (const uint32_t at : {0U, 10U, 20U, 30U, 40U}) REQUIRE(book.take(10) == at);
  for (const uint32_t dirty : {0U, 30U}) book.runs.give(dirty);
  for (const uint32_t held : {10U, 20U, 40U}) book.runs.hold(held, 1);
  CHECK(book.runs.give_held([](const Run&) { return true; }) == 30);
  CHECK(walk(book.runs).size() == 1);
}

TEST_CASE("heap runs: no more is returned than was asked for, from the end") {
  Book book(100);
  book.runs.give(book.take(50));
  const Runs::Range range = book.runs.most_dirty(8);
  CHECK(range.begin == 42);
  CHECK(range.granules == 8);
  book.runs.clean(range);
  CHECK(book.runs.dirty() == 42);
}

TEST_CASE("heap runs: a run begins where its alignment says, and nothing around it is lost") {
  Book book(256);
  CHECK(book.take(1) == 0);
  CHECK(book.take(5, 32) == 32);
  CHECK(book.take(31) == 1);
  CHECK(book.take(256 - 37) == 37);
  CHECK(book.take(1) == kNone);
}

TEST_CASE("heap runs: the beginning of a run is found from all of its granules") {
  Book book(1000);
  book.take(3);
  const uint32_t at = book.take(500);
  book.take(10);
  CHECK(book.runs.of(at).begin == at);
  CHECK(book.runs.of(at + 1).begin == at);
  CHECK(book.runs.of(at + 499).begin == at);
  CHECK(book.runs.of(at + 500).begin == at + 500);
  CHECK(book.runs.of(0).begin == 0);
}

TEST_CASE("heap runs: nothing, and more than there is, cannot be had") {
  Book book(10);
  CHECK(book.take(0) == kNone);
  CHECK(book.take(11) == kNone);
  CHECK(book.take(UINT32_MAX) == kNone);
  CHECK(book.take(10) == 0);
}

/// Does something at random with the book, and the same with the model of live runs.
void step(Book& book, std::map<uint32_t, uint32_t>& live, std::mt19937& random) {
  const uint32_t granules = 1 + random() % (random() % 8 == 0 ? 300 : 40);
  const uint32_t what = random() % 8;
  if (what < 4 || live.empty()) {
    const uint32_t alignment = 1U << (random() % 6);
    const uint32_t at = book.take(granules, alignment);
    if (at == kNone) return;
    CHECK(at % alignment == 0);
    live[at] = granules;
    return;
  }
  const auto chosen = std::next(live.begin(), static_cast<long>(random() % live.size()));
  if (what < 6) {
    book.runs.give(chosen->first);
    live.erase(chosen);
  } else if (what == 6) {
    book.runs.hold(chosen->first, 0);
    live.erase(chosen);
    if (random() % 2) book.runs.give_held([&](const Run& run) { return run.granules % 2 == 0; });
  } else {
    const Runs::Range range = book.runs.most_dirty(granules);
    if (range.granules > 0) book.runs.clean(range);
  }
}

TEST_CASE("heap runs: after any sequence the runs cover the arena, and live ones are the model's" *
          doctest::test_suite(testing::kSlowSanitized)) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Book book(2000);
    std::map<uint32_t, uint32_t> live;
    for (int count = 0; count < 2000; ++count) {
      step(book, live, random);
      uint64_t dirty = 0, fresh = 0;
      std::map<uint32_t, uint32_t> found;
      State before = State::kRetired;
      bool merged = true;
      for (const auto& [at, run] : walk(book.runs)) {
        if (run.state == State::kLive) found[at] = run.granules;
        if (run.state == State::kDirty) dirty += run.granules;
        if (run.state == State::kFresh) fresh += run.granules;
        // Two free neighbours of a kind would be one run.
        const bool is_free = run.state == State::kDirty || run.state == State::kFresh;
        merged = merged && (!is_free || run.state != before);
        before = run.state;
      }
      REQUIRE(merged);
      REQUIRE(found == live);
      REQUIRE(dirty == book.runs.dirty());
      REQUIRE(fresh == book.runs.fresh());
    }
  }
}

TEST_CASE("heap runs: when all is given back the arena is one run again") {
  std::mt19937 random(1);
  Book book(5000);
  std::map<uint32_t, uint32_t> live;
  for (int count = 0; count < 5000; ++count) step(book, live, random);
  for (const auto& [at, granules] : live) book.runs.give(at);
  book.runs.give_held([](const Run&) { return true; });
  book.return_all();
  CHECK(walk(book.runs).size() == 1);
  CHECK(book.take(5000) == 0);
}

}  // namespace
}  // namespace sirtaki::heap
