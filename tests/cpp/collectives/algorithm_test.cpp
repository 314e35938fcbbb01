#include "collectives/algorithm.h"

#include <string>
#include <vector>

#include "collectives/kinds.h"
#include "doctest/doctest.h"

// Which algorithm carries out an operation: tables.
namespace sirtaki {
namespace {

constexpr size_t kKiB = 1 << 10;
constexpr size_t kMiB = 1 << 20;
constexpr size_t kGiB = 1 << 30;

struct OnHost {
  Kind kind;
  size_t bytes;
  int members;
  Algorithm algorithm;
};

const std::vector<OnHost> kOnHost = {
    {Kind::kBarrier, 0, 2, Algorithm::kAtOnce},
    {Kind::kBarrier, 0, 100, Algorithm::kAtOnce},
    // Each reads all: so much that with many members this is as much as with four.
    {Kind::kAllreduce, 0, 2, Algorithm::kAtOnce},
    {Kind::kAllreduce, 16 * kKiB, 4, Algorithm::kAtOnce},
    {Kind::kAllreduce, 16 * kKiB + 1, 4, Algorithm::kStreamed},
    {Kind::kAllreduce, 8 * kKiB, 8, Algorithm::kAtOnce},
    {Kind::kAllreduce, 8 * kKiB + 1, 8, Algorithm::kStreamed},
    {Kind::kAllreduce, 16 * kKiB + 1, 2, Algorithm::kMirrored},
    {Kind::kAllreduce, kGiB, 2, Algorithm::kMirrored},
    {Kind::kAllreduce, kGiB, 3, Algorithm::kStreamed},
    {Kind::kReduce, 16 * kKiB, 2, Algorithm::kAtOnce},
    {Kind::kReduce, 16 * kKiB + 1, 2, Algorithm::kStreamed},
    {Kind::kReducescatter, 4, 2, Algorithm::kStreamed},
    // What is given fits into a small slot, for all members together.
    {Kind::kAllgather, 16 * kKiB, 100, Algorithm::kAtOnce},
    {Kind::kAllgather, 16 * kKiB + 1, 2, Algorithm::kStreamed},
    {Kind::kBroadcast, 16 * kKiB, 100, Algorithm::kAtOnce},
    {Kind::kBroadcast, 16 * kKiB + 1, 2, Algorithm::kStreamed},
    {Kind::kAlltoall, 4 * kKiB, 4, Algorithm::kAtOnce},
    {Kind::kAlltoall, 4 * kKiB, 5, Algorithm::kStreamed},
    {Kind::kGather, 4 * kKiB, 4, Algorithm::kAtOnce},
    {Kind::kScatter, 4 * kKiB, 5, Algorithm::kStreamed},
};

std::string described(Kind kind, size_t bytes) {
  return std::string(traits_of(kind).name) + " of " + std::to_string(bytes) + " bytes";
}

TEST_CASE("on a host few bytes go at once, more through the slots in chunks") {
  for (const OnHost& row : kOnHost) {
    CAPTURE(described(row.kind, row.bytes));
    CAPTURE(row.members);
    CHECK(algorithm_for({.kind = row.kind, .bytes = row.bytes, .members = row.members}) ==
          row.algorithm);
  }
}

TEST_CASE("what may lie in shared heaps is looked for there, but for a barrier") {
  for (int kind = 0; kind < static_cast<int>(Kind::kJoin); ++kind) {
    const Problem problem{
        .kind = static_cast<Kind>(kind), .bytes = kMiB, .members = 3, .heaps = true};
    const bool moves = problem.kind != Kind::kBarrier;
    CHECK(algorithm_for(problem) == (moves ? Algorithm::kHeaps : Algorithm::kAtOnce));
  }
}

TEST_CASE("one member exchanges nothing") {
  for (const Kind kind : {Kind::kAllreduce, Kind::kBroadcast, Kind::kBarrier}) {
    CHECK(algorithm_for({.kind = kind, .bytes = kMiB}) == Algorithm::kAlone);
  }
}

struct AmongHosts {
  Kind kind;
  size_t bytes;
  int hosts;
  Algorithm algorithm;
};

/// Of hosts of two members each.
const std::vector<AmongHosts> kAmongHosts = {
    {Kind::kBarrier, 0, 8, Algorithm::kAtOnce},
    {Kind::kBarrier, 0, 9, Algorithm::kAtOnce},
    // 64 KiB for all other hosts together, and 16 KiB for each, go at once.
    {Kind::kAllreduce, 16 * kKiB, 2, Algorithm::kAtOnce},
    {Kind::kAllreduce, 16 * kKiB + 1, 2, Algorithm::kDirect},
    {Kind::kAllreduce, 9362, 8, Algorithm::kAtOnce},
    {Kind::kAllreduce, 9363, 8, Algorithm::kDirect},
    {Kind::kAllreduce, kGiB, 8, Algorithm::kDirect},
    {Kind::kAllreduce, 4369, 16, Algorithm::kAtOnce},
    {Kind::kAllreduce, 4370, 16, Algorithm::kDirect},
    {Kind::kAllreduce, kGiB, 16, Algorithm::kDirect},
    {Kind::kReduce, 4, 8, Algorithm::kAtOnce},
    {Kind::kReduce, 4, 16, Algorithm::kAtOnce},
    {Kind::kReduce, kMiB, 8, Algorithm::kDirect},
    {Kind::kReduce, kMiB, 16, Algorithm::kDirect},
    {Kind::kReducescatter, 4, 8, Algorithm::kDirect},
    {Kind::kReducescatter, 4, 16, Algorithm::kDirect},
    {Kind::kBroadcast, 9362, 8, Algorithm::kAtOnce},
    {Kind::kBroadcast, 9363, 8, Algorithm::kChain},
    {Kind::kBroadcast, kGiB, 8, Algorithm::kChain},
    {Kind::kBroadcast, 4, 16, Algorithm::kTree},
    {Kind::kBroadcast, 5 * 192 * kKiB, 16, Algorithm::kTree},
    {Kind::kBroadcast, 6 * 192 * kKiB, 16, Algorithm::kChain},
    {Kind::kBroadcast, kGiB, 16, Algorithm::kChain},
    {Kind::kBroadcast, 10 * kMiB, 1250, Algorithm::kTree},
    {Kind::kBroadcast, kGiB, 1250, Algorithm::kChain},
    {Kind::kAllgather, kGiB, 8, Algorithm::kDirect},
    {Kind::kAllgather, 4, 16, Algorithm::kDirect},
    {Kind::kAlltoall, kGiB, 8, Algorithm::kDirect},
    {Kind::kAlltoall, 4, 16, Algorithm::kDirect},
    {Kind::kGather, 4, 16, Algorithm::kDirect},
    {Kind::kScatter, 4, 16, Algorithm::kDirect},
};

Problem among(int hosts, Kind kind, size_t bytes) {
  return {.kind = kind,
          .bytes = bytes,
          .members = 2 * hosts,
          .hosts = hosts,
          .lanes = 2,
          .slots = 3 * kMiB,
          .chunk_bytes = 96 * kKiB};
}

TEST_CASE("eight hosts all talk to each other; of more each talks to few where all get the same") {
  for (const AmongHosts& row : kAmongHosts) {
    CAPTURE(described(row.kind, row.bytes));
    CAPTURE(row.hosts);
    CHECK(algorithm_for(among(row.hosts, row.kind, row.bytes)) == row.algorithm);
  }
}

TEST_CASE("eight hosts exchange sums in one step, more in steps of two, blocks always in one") {
  CHECK(radix_for(among(8, Kind::kAllreduce, kMiB)) == 8);
  CHECK(radix_for(among(9, Kind::kAllreduce, kMiB)) == 2);
  CHECK(radix_for(among(9, Kind::kBarrier, 0)) == 2);
  CHECK(radix_for(among(9, Kind::kReducescatter, kMiB)) == 9);
}

TEST_CASE("a broadcast's chunk has a slice for each lane, and fits into the slots") {
  const BroadcastCut large = broadcast_cut(among(16, Kind::kBroadcast, kGiB));
  CHECK(large.chunk == 192 * kKiB);
  CHECK(large.lanes == 2);
  const BroadcastCut small = broadcast_cut(among(16, Kind::kBroadcast, 100));
  CHECK(small.chunk == 100);
  CHECK(small.lanes == 1);
  Problem cramped = among(16, Kind::kBroadcast, kGiB);
  cramped.slots = 96 * kKiB;
  CHECK(broadcast_cut(cramped).chunk <= 16 * kKiB);
}

}  // namespace
}  // namespace sirtaki
