#include "collectives/collectives.h"

#include <array>
#include <vector>

#include "collective_case.h"
#include "collectives/slots/stream_slots.h"
#include "doctest/doctest.h"

namespace sirtaki {
namespace {

using testing::Bytes;
using testing::Case;
using testing::CaseMaker;
using testing::Member;
using testing::op_of;

constexpr std::array kDtypes = {Dtype::kBool, Dtype::kU8,  Dtype::kI8,   Dtype::kI16, Dtype::kI32,
                                Dtype::kI64,  Dtype::kF16, Dtype::kBF16, Dtype::kF32, Dtype::kF64};
constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
constexpr std::array kScales = {Scale{}, Scale{0.3, 1.0}, Scale{1.0, 1.0 / 3}};

/// Runs the cases one after the other, all ranks of a world of `n` together.
void run_all(int n, size_t chunk_bytes, const std::vector<Case>& cases) {
  testing::run_members(n, chunk_bytes, [&](Member& member) {
    for (const Case& c : cases) {
      testing::run_case(member, c, static_cast<size_t>(member.rank));
    }
  });
}

bool may_be_in_place(const Case& c, int n) {
  return c.op.kind == Kind::kAllreduce || c.op.kind == Kind::kBroadcast ||
         (n == 1 && c.op.kind == Kind::kReduce);
}

/// The case, and the case in place if there is such a thing.
void add_case(std::vector<Case>& cases, const Op& op, int n, size_t count, uint32_t seed) {
  cases.push_back(CaseMaker(op, n, count, seed).make());
  if (!may_be_in_place(cases.back(), n)) return;
  Case in_place = cases.back();
  in_place.in_place = true;
  cases.push_back(std::move(in_place));
}

TEST_CASE("every collective gives exact results for every dtype and every number of ranks") {
  for (const int n : testing::kWorlds) {
    CAPTURE(n);
    std::vector<Case> cases;
    uint32_t seed = 0;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{10}, size_t{1000}}) {
      for (const Kind kind : testing::kDataKinds) {
        for (const Dtype dtype : kDtypes) {
          ++seed;
          add_case(cases, op_of(kind, dtype, static_cast<int>(seed) % n), n, count, seed);
        }
      }
    }
    run_all(n, testing::kSmallestChunk, cases);
  }
}

TEST_CASE("every collective streams messages of many chunks" * doctest::test_suite("slow")) {
  for (const int n : testing::kWorlds) {
    CAPTURE(n);
    std::vector<Case> cases;
    uint32_t seed = 0;
    for (const Kind kind : testing::kDataKinds) {
      for (const Dtype dtype : {Dtype::kU8, Dtype::kF32, Dtype::kF64}) {
        for (const size_t count : {size_t{20'001}, size_t{37'003}}) {
          ++seed;
          add_case(cases, op_of(kind, dtype, static_cast<int>(seed) % n), n, count, seed);
        }
      }
    }
    run_all(n, testing::kSmallestChunk, cases);
  }
}

TEST_CASE("every collective moves a million elements" * doctest::test_suite("slow")) {
  // The instrumented builds would take minutes for all numbers of ranks.
  for (const int n : {1, 2, 3, 4, 7}) {
    if (testing::kSanitized && n > 3) continue;
    CAPTURE(n);
    for (const Kind kind : testing::kDataKinds) {
      const size_t parts = kind == Kind::kAlltoall || kind == Kind::kReducescatter ? 3 : 1;
      std::vector<Case> cases;
      add_case(cases, op_of(kind, Dtype::kF32, n - 1), n, 1'000'000 / parts, 3);
      run_all(n, 128 << 10, cases);
    }
  }
}

TEST_CASE("reductions give exact results for every operation and scale") {
  for (const int n : {1, 2, 3, 7}) {
    CAPTURE(n);
    std::vector<Case> cases;
    uint32_t seed = 0;
    for (const size_t count : {size_t{5}, size_t{9'001}}) {
      for (const Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReducescatter}) {
        for (const Dtype dtype : kDtypes) {
          for (const ReduceOp reduce : kOps) {
            const Scale& scale = kScales[++seed % kScales.size()];
            const int root = static_cast<int>(seed) % n;
            add_case(cases, op_of(kind, dtype, root, reduce, scale), n, count, seed);
          }
        }
      }
    }
    run_all(n, testing::kSmallestChunk, cases);
  }
}

TEST_CASE("with a codec every contribution is encoded once, and their float32 sum is not" *
          doctest::test_suite(testing::kSlowSanitized)) {
  for (const int n : testing::kWorlds) {
    CAPTURE(n);
    std::vector<Case> cases;
    uint32_t seed = 0;
    for (const size_t count :
         {size_t{0}, size_t{1}, size_t{1000}, size_t{20'001}, size_t{37'003}}) {
      for (const CodecId codec : reference::codecs()) {
        for (const ReduceOp reduce : kOps) {
          if (!has_reduction(codec, reduce)) continue;
          const Scale& scale = kScales[++seed % kScales.size()];
          const Op op = op_of(Kind::kAllreduce, Dtype::kF32, 0, reduce, scale);
          add_case(cases, testing::encoding(op, codec), n, count, seed);
        }
      }
    }
    run_all(n, testing::kSmallestChunk, cases);
  }
}

TEST_CASE("a streamed reduction is right for every length of its last chunk" *
          doctest::test_suite(testing::kSlowSanitized)) {
  // The largest chunk leaves no room between the slots and what lies behind them.
  for (const int n : {2, 3}) {
    CAPTURE(n);
    std::vector<Case> cases;
    for (const size_t less : {4, 8, 60, 64, 68, 128, 4096}) {
      const size_t bytes = 4 * StreamSlots::most(Region::kWorldStreamBytes) - less;
      for (const Kind kind : {Kind::kAllreduce, Kind::kReduce}) {
        cases.push_back(CaseMaker(op_of(kind, Dtype::kF32, 1), n, bytes / 4, 1).make());
      }
      for (const CodecId codec : {CodecId::kBF16, CodecId::kInt8, CodecId::kInt4}) {
        const Op op = testing::encoding(op_of(Kind::kAllreduce, Dtype::kF32), codec);
        cases.push_back(CaseMaker(op, n, bytes / 4, 1).make());
      }
    }
    run_all(n, size_t{1} << 30, cases);
  }
}

TEST_CASE("the result has the same bits whatever the chunk size and the number of segments") {
  constexpr int kRanks = 3;
  const Case base = CaseMaker(op_of(Kind::kAllreduce, Dtype::kF16), kRanks, 100'003, 1).make();
  for (const size_t chunk : {size_t{4096}, size_t{20'480}, size_t{1} << 20}) {
    for (uint32_t seed = 1; seed < 4; ++seed) {
      Case other = base;
      other.seed = seed;  // other segments of the same stream
      run_all(kRanks, chunk, {other});
    }
  }
}

TEST_CASE("a barrier lets nobody through before everybody has come") {
  for (const int n : {2, 3, 7}) {
    std::atomic<int> arrived{0};
    testing::run_members(n, testing::kSmallestChunk, [&](Member& member) {
      for (int round = 1; round <= 50; ++round) {
        arrived.fetch_add(1);
        member.run(op_of(Kind::kBarrier, Dtype::kU8), Streams(1), Streams(1));
        testing::expect(arrived.load() >= round * n, "all have come");
      }
    });
  }
}

TEST_CASE("the last rank may be very late") {
  constexpr int kRanks = 3;
  std::vector<Case> cases;
  for (const Kind kind : testing::kDataKinds) {
    add_case(cases, op_of(kind, Dtype::kI32, 1), kRanks, 30'000, 1);
  }
  testing::run_members(kRanks, testing::kSmallestChunk, [&](Member& member) {
    for (const Case& c : cases) {
      if (member.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      testing::run_case(member, c, static_cast<size_t>(member.rank));
    }
  });
}

}  // namespace
}  // namespace sirtaki
