#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "collective_case.h"
#include "doctest/doctest.h"
#include "engines.h"
#include "test_heap.h"

// Collectives in shared heaps that do not come to their end, and several at a time. One thread
// drives all ranks, step by step.
namespace sirtaki {
namespace {

using testing::Member;
using testing::op_of;
using testing::TestHeap;

constexpr size_t kCount = 1'000'000;
constexpr size_t kBytes = kCount * sizeof(float);

/// One rank's part in an allreduce of ones.
struct Part {
  Part(Member& member, int32_t set) {
    op.set = set;
    op.longest = kBytes;
    data = TestHeap::get().allocate(kBytes);
    std::fill_n(values(), kCount, 1.0f);
    streams[0].add(data, kBytes);
    work = member.backend->start(op, streams, streams);
  }

  float* values() const { return reinterpret_cast<float*>(data); }
  bool shared() const { return TestHeap::get().shares(data, kBytes); }
  bool all_are(float value) const {
    return std::all_of(values(), values() + kCount, [&](float v) { return v == value; });
  }

  Op op = op_of(Kind::kAllreduce, Dtype::kF32);
  std::byte* data;
  Streams streams = Streams(1);
  WorkPtr work;
};

struct HeapWorld {
  explicit HeapWorld(int n) : region(Region::anonymous(n)) {
    for (int r = 0; r < n; ++r) {
      members.push_back(
          std::make_unique<Member>(region, r, testing::kSmallestChunk, TestHeap::get().own()));
    }
  }
  ~HeapWorld() { TestHeap::get().clear(); }

  std::unique_ptr<Part> begin(int rank, int32_t set = 0) {
    return std::make_unique<Part>(*members[static_cast<size_t>(rank)], set);
  }
  void abort(int rank) { members[0]->endpoint.doorbell.abort(rank); }
  void add_set(int32_t set, const std::vector<int>& ranks) {
    std::vector<WorkPtr> works;
    for (const auto& member : members) works.push_back(member->backend->add_set(set, ranks));
    run(works);
  }

  static void run(const std::vector<WorkPtr>& works) {
    for (size_t done = 0; done < works.size();) {
      done = 0;
      for (const WorkPtr& work : works) done += work->advance() ? 1 : 0;
    }
  }

  std::shared_ptr<Region> region;
  std::vector<std::unique_ptr<Member>> members;
};

TEST_CASE("who waits for a member that does not come says for whom") {
  HeapWorld world(3);
  const auto first = world.begin(0);
  const auto second = world.begin(1);
  CHECK(!first->work->advance());
  CHECK(!second->work->advance());
  CHECK(first->work->awaited() == Awaited{Phase::kWrite, 2, 2, 0});
  CHECK(second->work->awaited() == Awaited{Phase::kWrite, 2, 2, 0});
}

TEST_CASE("who waits for a member that is stuck in the middle says for whom") {
  HeapWorld world(2);
  const auto first = world.begin(0);
  const auto second = world.begin(1);
  second->work->advance();
  while (first->work->is_ready()) first->work->advance();
  CHECK(first->work->awaited() == Awaited{Phase::kWrite, 1, 1, 1});
}

TEST_CASE("an operation that ends well leaves its memory shared") {
  HeapWorld world(2);
  const auto first = world.begin(0);
  const auto second = world.begin(1);
  for (bool done = false; !done;) {
    done = first->work->advance();
    done = second->work->advance() && done;
  }
  CHECK(first->all_are(2.0f));
  CHECK(second->all_are(2.0f));
  CHECK(first->shared());
  CHECK(second->shared());
}

TEST_CASE("a member that gives up before all have come abandons its memory") {
  HeapWorld world(2);
  const auto first = world.begin(0);
  first->work->advance();
  world.abort(1);
  CHECK(first->shared());
  first->work.reset();
  CHECK(!first->shared());
  CHECK(first->all_are(1.0f));
}

TEST_CASE("a member whose peer dies in the middle abandons its memory") {
  HeapWorld world(2);
  const auto first = world.begin(0);
  auto second = world.begin(1);
  first->work->advance();
  second->work->advance();  // it has summed a part of its slice
  while (first->work->is_ready()) first->work->advance();
  second.reset();
  world.abort(1);
  first->work.reset();
  CHECK(!first->shared());
}

TEST_CASE("a member that shows what cannot be ends the world, for no other member sees it") {
  HeapWorld world(2);
  const auto first = world.begin(0);
  first->work->advance();
  const uint64_t table[] = {1, 1, kBytes, uint64_t{1} << 60};  // a stream of one segment
  std::memcpy(world.region->slots(0, 0), table, sizeof table);
  const auto second = world.begin(1);
  const Error error = testing::error_of([&] { second->work->advance(); });
  CHECK(error.code == ErrorCode::kPeerLost);
  CHECK(std::string(error.what()).find("rank 0 says what cannot be") != std::string::npos);
}

TEST_CASE("a member in the middle of its slice hears that the world has ended") {
  HeapWorld world(2);
  const auto first = world.begin(0);
  const auto second = world.begin(1);
  first->work->advance();
  second->work->advance();
  world.abort(0);
  CHECK(second->work->is_ready());
  CHECK_THROWS_AS(second->work->advance(), PeerLost);
}

TEST_CASE("operations that others only read leave their memory shared, however they end") {
  HeapWorld world(2);
  Member& member = *world.members[0];
  std::byte* const in = TestHeap::get().allocate(kBytes);
  std::byte* const out = TestHeap::get().allocate(kBytes);
  Streams source(1);
  Streams target(2);
  source[0].add(in, kBytes);
  target[0].add(out, kBytes);
  target[1].add(TestHeap::get().allocate(kBytes), kBytes);
  Op op = op_of(Kind::kAllgather, Dtype::kF32);
  op.longest = kBytes;
  WorkPtr work = member.backend->start(op, source, target);
  work->advance();
  work.reset();
  CHECK(TestHeap::get().shares(in, kBytes));
  CHECK(TestHeap::get().shares(out, kBytes));
}

TEST_CASE("operations of several process sets go on side by side") {
  HeapWorld world(3);
  world.add_set(1, {0, 1});
  world.add_set(2, {1, 2});
  std::vector<std::unique_ptr<Part>> parts;
  for (const int rank : {0, 1, 2}) parts.push_back(world.begin(rank));
  for (const int rank : {0, 1}) parts.push_back(world.begin(rank, 1));
  for (const int rank : {1, 2}) parts.push_back(world.begin(rank, 2));
  size_t turns = 0;
  for (size_t done = 0; done < parts.size(); ++turns) {
    done = 0;
    for (const auto& part : parts) done += part->work->advance() ? 1 : 0;
  }
  CHECK(turns > 2);  // none has run to its end at one go
  for (size_t i = 0; i < parts.size(); ++i) CHECK(parts[i]->all_are(i < 3 ? 3.0f : 2.0f));
  CHECK(world.members[1]->heaps->operations() == 3);
}

}  // namespace
}  // namespace sirtaki
