#include <array>
#include <atomic>
#include <string>

#include "base/error.h"
#include "collective_case.h"
#include "doctest/doctest.h"
#include "virtual_hosts.h"

namespace sirtaki {
namespace {

using testing::Bytes;
using testing::Case;
using testing::CaseMaker;
using testing::expect;
using testing::HostedMember;
using testing::op_of;

const std::vector<std::vector<int>> kLayouts = {
    {0, 1}, {0, 0, 1}, {0, 0, 1, 1}, {0, 1, 2}, {0, 1, 0, 1}, {0, 1, 1, 1}, {0, 0, 1, 2, 2, 2}};
constexpr std::array kDtypes = {Dtype::kF32, Dtype::kI32, Dtype::kF16, Dtype::kBool};
constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

bool may_be_in_place(const Case& c) {
  return c.op.kind == Kind::kAllreduce || c.op.kind == Kind::kBroadcast;
}

/// Small whole numbers, whose folds are exact in every order and every dtype.
void make_whole(Dtype dtype, Bytes& stream) {
  const size_t size = size_of(dtype);
  for (size_t i = 0; i < stream.size() / size; ++i) {
    const auto number = static_cast<float>((i * 7 + stream[i * size]) % 5);
    const uint16_t half = f32_to_f16(number);
    if (dtype == Dtype::kF32) std::memcpy(&stream[i * size], &number, size);
    if (dtype == Dtype::kF16) std::memcpy(&stream[i * size], &half, size);
  }
}

bool is_reduction(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReducescatter;
}

Case case_of(const Op& op, int members, size_t count, uint32_t seed) {
  return CaseMaker(op, members, count, seed, is_reduction(op.kind) ? make_whole : nullptr).make();
}

void add_case(std::vector<Case>& cases, const Op& op, int n, size_t count, uint32_t seed) {
  cases.push_back(case_of(op, n, count, seed));
  if (!may_be_in_place(cases.back())) return;
  Case in_place = cases.back();
  in_place.in_place = true;
  cases.push_back(std::move(in_place));
}

void run_all(const std::vector<int>& layout, size_t chunk, const std::vector<Case>& cases) {
  const auto run = [&](HostedMember& member) {
    for (const Case& c : cases) {
      testing::run_case(member, c, static_cast<size_t>(member.rank));
    }
  };
  testing::run_on_hosts(layout, chunk, run);
}

std::string text(const std::vector<int>& layout) {
  std::string result;
  for (int host : layout) result += std::to_string(host);
  return result;
}

TEST_CASE("every collective gives exact results on every layout of hosts") {
  for (const auto& layout : kLayouts) {
    CAPTURE(text(layout));
    const int n = static_cast<int>(layout.size());
    std::vector<Case> cases;
    uint32_t seed = 0;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{10}, size_t{1000}, size_t{40'001}}) {
      for (const Kind kind : testing::kDataKinds) {
        for (const Dtype dtype : kDtypes) {
          if (testing::kSanitized && count > 1000 && dtype != Dtype::kF32) continue;
          ++seed;
          add_case(cases, op_of(kind, dtype, static_cast<int>(seed) % n), n, count, seed);
        }
      }
    }
    run_all(layout, testing::kSmallestChunk, cases);
  }
}

TEST_CASE("every collective moves a million elements between hosts" * doctest::test_suite("slow")) {
  constexpr size_t kCount = testing::kSanitized ? 300'000 : 1'000'000;
  for (const auto& layout : kLayouts) {
    if (testing::kSanitized && layout.size() > 3) continue;
    CAPTURE(text(layout));
    const int n = static_cast<int>(layout.size());
    for (const Kind kind : testing::kDataKinds) {
      const bool parts = kind == Kind::kAlltoall || kind == Kind::kReducescatter;
      std::vector<Case> cases;
      add_case(cases, op_of(kind, Dtype::kF32, n - 1), n, kCount / (parts ? 3 : 1), 3);
      run_all(layout, 96 << 10, cases);
    }
  }
}

TEST_CASE("reductions between hosts are right for every operation and scale" *
          doctest::test_suite("slow")) {
  constexpr std::array kScales = {Scale{}, Scale{0.5, 1.0}, Scale{1.0, 0.25}, Scale{2.0, 0.5}};
  for (const auto& layout : kLayouts) {
    CAPTURE(text(layout));
    const int n = static_cast<int>(layout.size());
    std::vector<Case> cases;
    uint32_t seed = 0;
    for (const size_t count : {size_t{5}, size_t{19'001}}) {
      for (const Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReducescatter}) {
        for (const Dtype dtype : kDtypes) {
          if (testing::kSanitized && count > 1000 && dtype != Dtype::kF16) continue;
          for (const ReduceOp reduce : kOps) {
            const Scale& scale = kScales[++seed % kScales.size()];
            const int root = static_cast<int>(seed) % n;
            add_case(cases, op_of(kind, dtype, root, reduce, scale), n, count, seed);
          }
        }
      }
    }
    run_all(layout, testing::kSmallestChunk, cases);
  }
}

TEST_CASE("with a codec sums between hosts are right, and have the same bits on all ranks") {
  for (const auto& layout : kLayouts) {
    CAPTURE(text(layout));
    const int n = static_cast<int>(layout.size());
    std::vector<Case> cases;
    uint32_t seed = 0;
    for (const size_t count : {size_t{0}, size_t{5}, size_t{19'001}}) {
      for (const CodecId codec : {CodecId::kF16, CodecId::kBF16}) {
        const Op op = op_of(Kind::kAllreduce, Dtype::kF32, 0, ReduceOp::kSum, Scale{1.0, 0.25});
        add_case(cases, testing::encoding(op, codec), n, count, ++seed);
      }
    }
    run_all(layout, testing::kSmallestChunk, cases);
  }
}

TEST_CASE("with a codec contributions, sums of hosts and the result are rounded to 16 bits") {
  // On the first host 1 + 2^-8 is 1 in bfloat16, and 1 + 256 is 256 (a tie); with the other host's
  // 258 that is 514, and becomes 512 or 516: even is 512.
  testing::run_on_hosts({0, 0, 1}, testing::kSmallestChunk, [](HostedMember& member) {
    constexpr std::array kGiven = {1.0f + 0x1p-8f, 256.0f, 258.0f};
    for (const size_t count : {size_t{3}, size_t{30'000}}) {
      std::vector<float> values(count, kGiven[static_cast<size_t>(member.rank)]);
      Streams stream(1);
      stream[0].add(values.data(), count * sizeof(float));
      Op op = testing::encoding(op_of(Kind::kAllreduce, Dtype::kF32), CodecId::kBF16);
      op.longest = stream[0].bytes();
      member.run(op, stream, stream);
      expect(values == std::vector<float>(count, 512.0f), "each is rounded to nearest even");
    }
  });
}

TEST_CASE("averages of integers whose sum does not fit into their type are exact") {
  const auto any_bits = [](Dtype, Bytes& bytes) {
    for (auto& byte : bytes) byte = static_cast<unsigned char>(byte * 37 + 200);
  };
  std::vector<Case> cases;
  uint32_t seed = 0;
  for (const Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReducescatter}) {
    for (const Dtype dtype : {Dtype::kI8, Dtype::kU16, Dtype::kI32, Dtype::kI64, Dtype::kU64}) {
      for (const size_t count : {size_t{1}, size_t{50}, size_t{30'000}}) {
        const Op op = op_of(kind, dtype, 1, ReduceOp::kAverage);
        cases.push_back(CaseMaker(op, 4, count, ++seed, any_bits).make());
        cases.back().in_place = kind == Kind::kAllreduce && seed % 2 == 0;
      }
    }
  }
  for (const std::vector<int>& layout : {std::vector<int>{0, 0, 1, 2}, {0, 1, 1, 1}}) {
    CAPTURE(text(layout));
    testing::run_on_hosts(layout, testing::kSmallestChunk, [&](HostedMember& member) {
      for (const Case& c : cases) run_case(member, c, static_cast<size_t>(member.rank));
    });
  }
}

TEST_CASE("sums of any numbers have the same bits on all ranks and in every run") {
  constexpr size_t kCount = 100'003;
  for (const auto& layout : kLayouts) {
    CAPTURE(text(layout));
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16}) {
      std::vector<Bytes> results(2 * layout.size());
      for (size_t run = 0; run < 2; ++run) {
        testing::run_on_hosts(layout, testing::kSmallestChunk, [&](HostedMember& member) {
          Bytes data = testing::numbers(dtype, kCount, static_cast<uint32_t>(member.rank));
          Streams stream{testing::cut(data, size_of(dtype), static_cast<uint32_t>(run))};
          Op op = op_of(Kind::kAllreduce, dtype);
          op.longest = data.size();
          member.run(op, stream, stream);
          results[run * layout.size() + static_cast<size_t>(member.rank)] = std::move(data);
        });
      }
      for (const Bytes& result : results) CHECK(result == results[0]);
    }
  }
}

TEST_CASE("an average of large 16-bit floats does not overflow on the way") {
  testing::run_on_hosts({0, 0, 1, 1}, testing::kSmallestChunk, [](HostedMember& member) {
    for (const size_t count : {size_t{4}, size_t{30'000}}) {
      std::vector<uint16_t> values(count, f32_to_f16(60'000));
      Streams stream(1);
      stream[0].add(values.data(), 2 * count);
      Op op = op_of(Kind::kAllreduce, Dtype::kF16, 0, ReduceOp::kAverage, Scale{1.0, 0.25});
      op.longest = 2 * count;
      member.run(op, stream, stream);
      expect(values == std::vector<uint16_t>(count, f32_to_f16(60'000)), "the average is right");
    }
  });
}

/// Adasum of all members' vectors is computed on one host elsewhere; here it must not depend on
/// where the members are.
TEST_CASE("adasum gives the same on several hosts as on one") {
  for (const size_t count : {size_t{100}, size_t{30'000}}) {
    for (const auto& layout : kLayouts) {
      CAPTURE(text(layout));
      std::vector<std::vector<float>> results[2];
      for (int run = 0; run < 2; ++run) {
        results[run].resize(layout.size());
        const std::vector<int> one_host(layout.size());
        testing::run_on_hosts(run == 0 ? one_host : layout, 4096, [&](HostedMember& member) {
          std::vector<float> values(count);
          for (size_t i = 0; i < count; ++i) {
            values[i] = static_cast<float>((i * 3 + static_cast<size_t>(member.rank) * 5) % 11);
          }
          Streams stream(1);
          stream[0].add(values.data(), 4 * (count / 3));
          stream[0].add(values.data() + count / 3, 4 * (count - count / 3));
          Op op = op_of(Kind::kAllreduce, Dtype::kF32, 0, ReduceOp::kAdasum);
          op.longest = 4 * count;
          member.run(op, stream, stream);
          results[run][static_cast<size_t>(member.rank)] = values;
        });
      }
      float most = 0;
      for (size_t i = 0; i < count; ++i) {
        most = std::max(most, std::abs(results[0][0][i] - results[1][0][i]));
      }
      CHECK(most < 1e-4f);
      for (const auto& result : results[1]) CHECK(result == results[1][0]);
    }
  }
}

TEST_CASE("adasum of equal vectors of 16-bit floats is the vector, however small its numbers") {
  // Halves of odd multiples of the least number of a format are rounded.
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16}) {
    for (const auto& layout : kLayouts) {
      CAPTURE(text(layout));
      testing::run_on_hosts(layout, 4096, [&](HostedMember& member) {
        std::vector<uint16_t> values(30'001);
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i % 111);
        const std::vector<uint16_t> expected = values;
        Streams stream(1);
        stream[0].add(values.data(), 2 * 10'001);
        stream[0].add(values.data() + 10'001, 2 * 20'000);
        Op op = op_of(Kind::kAllreduce, dtype, 0, ReduceOp::kAdasum);
        op.longest = 2 * values.size();
        member.run(op, stream, stream);
        expect(values == expected, "the numbers are the same");
      });
    }
  }
}

TEST_CASE("a barrier between hosts lets nobody through before everybody has come") {
  for (const auto& layout : kLayouts) {
    std::atomic<int> arrived{0};
    const int n = static_cast<int>(layout.size());
    testing::run_on_hosts(layout, testing::kSmallestChunk, [&](HostedMember& member) {
      for (int round = 1; round <= 20; ++round) {
        arrived.fetch_add(1);
        member.run(op_of(Kind::kBarrier, Dtype::kU8), Streams(1), Streams(1));
        expect(arrived.load() >= round * n, "all have come");
      }
    });
  }
}

}  // namespace
}  // namespace sirtaki
