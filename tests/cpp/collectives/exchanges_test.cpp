#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "collective_case.h"
#include "collectives/plan.h"
#include "doctest/doctest.h"
#include "virtual_hosts.h"

// Each exchange between hosts, made to be taken at any number of hosts and any size.
namespace sirtaki {
namespace {

using testing::Bytes;
using testing::Case;
using testing::CaseMaker;
using testing::expect;
using testing::HostedMember;
using testing::op_of;

constexpr std::array kHostCounts = {2, 3, 4, 5, 8, 16};

/// Nobody talks to everybody; what is not gathered is halved.
constexpr ExchangeRules kGathers{.direct_hosts = 1};
constexpr ExchangeRules kHalves{.direct_hosts = 1, .gathered_bytes = 0};

ExchangeRules with_radix(ExchangeRules rules, int radix) {
  rules.radix = radix;
  return rules;
}

/// One rank a host, and from one to three in turn.
std::vector<std::vector<int>> layouts_of(int hosts) {
  std::vector<int> alone, uneven;
  for (int h = 0; h < hosts; ++h) {
    alone.push_back(h);
    uneven.insert(uneven.end(), static_cast<size_t>(1 + h % 3), h);
  }
  return {alone, uneven};
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

void run_all(const std::vector<int>& layout, const std::vector<Case>& cases,
             const ExchangeRules& rules, size_t chunk = testing::kSmallestChunk) {
  const auto run = [&](HostedMember& member) {
    for (const Case& c : cases) testing::run_case(member, c, static_cast<size_t>(member.rank));
  };
  testing::run_on_hosts(layout, chunk, run, rules);
}

/// Runs a collective at every number of hosts, with no, some and many elements, and each time
/// another root.
void run_everywhere(Kind kind, const ExchangeRules& rules, const std::vector<size_t>& counts) {
  for (const int hosts : kHostCounts) {
    for (const auto& layout : layouts_of(hosts)) {
      const int n = static_cast<int>(layout.size());
      CAPTURE(hosts);
      CAPTURE(n);
      std::vector<Case> cases;
      uint32_t seed = static_cast<uint32_t>(hosts);
      for (const size_t count : counts) {
        for (const Dtype dtype : {Dtype::kF32, Dtype::kU8}) {
          const Op op = op_of(kind, dtype, static_cast<int>(++seed) % n);
          cases.push_back(CaseMaker(op, n, count, seed, make_whole).make());
        }
      }
      run_all(layout, cases, rules);
    }
  }
}

TEST_CASE("small sums are gathered in doubling steps") {
  run_everywhere(Kind::kAllreduce, kGathers, {0, 1, 1000});
  run_everywhere(Kind::kReduce, kGathers, {1, 1000});
}

TEST_CASE("broadcasts take a tree, or chains") {
  run_everywhere(Kind::kBroadcast, kGathers, {0, 1, 1000, 10'001, 60'001});
}

TEST_CASE("what each member has of its own goes straight to where it belongs") {
  run_everywhere(Kind::kAllgather, kGathers, {0, 1, 100, 10'001});
  run_everywhere(Kind::kReducescatter, kGathers, {1, 100, 10'001});
}

TEST_CASE("a barrier of doubling steps lets nobody through before everybody has come") {
  for (const int hosts : kHostCounts) {
    for (const auto& layout : layouts_of(hosts)) {
      std::atomic<int> arrived{0};
      const int n = static_cast<int>(layout.size());
      const auto run = [&](HostedMember& member) {
        for (int round = 1; round <= 20; ++round) {
          arrived.fetch_add(1);
          member.run(op_of(Kind::kBarrier, Dtype::kU8), Streams(1), Streams(1));
          expect(arrived.load() >= round * n, "all have come");
        }
      };
      testing::run_on_hosts(layout, testing::kSmallestChunk, run, kGathers);
    }
  }
}

TEST_CASE("sums are halved and doubled among any number of hosts") {
  for (const Kind kind : {Kind::kAllreduce, Kind::kReduce}) {
    run_everywhere(kind, kHalves, {1, 100, 10'001});
  }
}

void check_radix(int hosts, int radix, const std::vector<int>& layout, const ExchangeRules& rules) {
  CAPTURE(hosts);
  CAPTURE(radix);
  const int n = static_cast<int>(layout.size());
  auto seed = static_cast<uint32_t>(hosts * radix);
  std::vector<Case> cases;
  for (const size_t count : {1, 20'011}) {
    for (const Kind kind : {Kind::kAllreduce, Kind::kReduce}) {
      const Op op = op_of(kind, Dtype::kF16, static_cast<int>(++seed) % n);
      cases.push_back(CaseMaker(op, n, count, seed, make_whole).make());
    }
    for (const CodecId codec : {CodecId::kF16, CodecId::kBF16}) {
      const Op op = testing::encoding(op_of(Kind::kAllreduce, Dtype::kF32), codec);
      cases.push_back(CaseMaker(op, n, count, ++seed, make_whole).make());
    }
  }
  run_all(layout, cases, with_radix(rules, radix));
}

TEST_CASE("sums are exact at every number of hosts and every radix" *
          doctest::test_suite(testing::kSlowSanitized)) {
  for (int hosts = 2; hosts <= 9; ++hosts) {
    for (int radix = 2; radix <= hosts; ++radix) {
      check_radix(hosts, radix, layouts_of(hosts)[0], kGathers);
      check_radix(hosts, radix, layouts_of(hosts)[1], kHalves);
    }
  }
}

/// What allreduce gives each rank for any numbers.
std::vector<Bytes> sums_of(const std::vector<int>& layout, Dtype dtype, size_t count,
                           const ExchangeRules& rules) {
  std::vector<Bytes> results(layout.size());
  const auto run = [&](HostedMember& member) {
    Bytes data = testing::numbers(dtype, count, static_cast<uint32_t>(member.rank));
    Streams stream{testing::cut(data, size_of(dtype), 1)};
    Op op = op_of(Kind::kAllreduce, dtype);
    op.longest = data.size();
    member.run(op, stream, stream);
    results[static_cast<size_t>(member.rank)] = std::move(data);
  };
  testing::run_on_hosts(layout, testing::kSmallestChunk, run, rules);
  return results;
}

TEST_CASE("sums that are gathered in steps have the bits of those that all hosts send to all") {
  for (const int hosts : kHostCounts) {
    for (const auto& layout : layouts_of(hosts)) {
      for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
        const Bytes direct = sums_of(layout, dtype, 1001, {.direct_hosts = 100})[0];
        for (const int radix : {2, 3}) {
          const ExchangeRules rules = with_radix(kGathers, radix);
          for (const Bytes& sum : sums_of(layout, dtype, 1001, rules)) CHECK(sum == direct);
        }
      }
    }
  }
}

// ---- On which way a number is added up ----

/// The numbers of one element, by host, as floats: the order in which hosts fold them is all that
/// matters.
using Column = std::vector<float>;

float rounded(Dtype dtype, float value) {
  if (dtype == Dtype::kF16) return f16_to_f32(f32_to_f16(value));
  if (dtype == Dtype::kBF16) return bf16_to_f32(f32_to_bf16(value));
  return value;
}

/// In each step, what is a multiple of `kept` away is added in the order of hosts, and rounded.
float sum_in_steps(const Column& numbers, size_t owner, size_t radix, Dtype dtype) {
  const size_t hosts = numbers.size();
  const auto host_at = [&](size_t before) { return (owner + hosts - before) % hosts; };
  Column sums = numbers;
  for (size_t had = hosts; had > 1;) {
    const size_t kept = (had + radix - 1) / radix;
    for (size_t i = 0; i < kept; ++i) {
      std::vector<size_t> order;
      for (size_t away = i; away < had; away += kept) order.push_back(host_at(away));
      std::sort(order.begin(), order.end());
      float sum = sums[order[0]];
      for (size_t k = 1; k < order.size(); ++k) sum += sums[order[k]];
      sums[host_at(i)] = rounded(dtype, sum);
    }
    had = kept;
  }
  return sums[owner];
}

float number_at(Dtype dtype, const Bytes& bytes, size_t index) {
  if (dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * index, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, bytes.data() + 2 * index, 2);
  return dtype == Dtype::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
}

/// Compares every element with what the rule says. One rank a host and one chunk, so that slices
/// tell the owners.
void check_rule(Dtype dtype, int radix) {
  constexpr size_t kCount = 1000;
  for (const int hosts : kHostCounts) {
    CAPTURE(hosts);
    const std::vector<int> layout = layouts_of(hosts)[0];
    std::vector<Bytes> inputs;
    for (int r = 0; r < hosts; ++r) {
      inputs.push_back(testing::numbers(dtype, kCount, static_cast<uint32_t>(r)));
    }
    const Bytes sum = sums_of(layout, dtype, kCount, with_radix(kHalves, radix))[0];
    size_t wrong = 0;
    for (int owner = 0; owner < hosts; ++owner) {
      const Range slice = slice_of(sum.size(), hosts, owner);
      for (size_t i = slice.begin / size_of(dtype); i < slice.end / size_of(dtype); ++i) {
        Column column;
        for (const Bytes& input : inputs) column.push_back(number_at(dtype, input, i));
        const auto factor = static_cast<size_t>(radix);
        const float expected = sum_in_steps(column, static_cast<size_t>(owner), factor, dtype);
        wrong += number_at(dtype, sum, i) != expected;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("numbers are added in the order of hosts in each step, and 16-bit floats rounded") {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16, Dtype::kF32}) {
    for (const int radix : {2, 3, 4, 16}) check_rule(dtype, radix);
  }
}

TEST_CASE("every radix gives the same bits on all ranks and in every run") {
  for (const int hosts : kHostCounts) {
    const std::vector<int> layout = layouts_of(hosts)[1];
    for (const int radix : {2, 3, hosts}) {
      const ExchangeRules rules = with_radix(kHalves, radix);
      for (const Dtype dtype : {Dtype::kF32, Dtype::kF16}) {
        const Bytes first = sums_of(layout, dtype, 20'011, rules)[0];
        for (const Bytes& sum : sums_of(layout, dtype, 20'011, rules)) CHECK(sum == first);
      }
    }
  }
}

TEST_CASE("an average of large 16-bit floats does not overflow on any level of the tree") {
  const std::vector<int> layout = layouts_of(5)[1];
  const auto n = static_cast<double>(layout.size());
  const auto run = [&](HostedMember& member) {
    std::vector<uint16_t> values(3000, f32_to_f16(60'000));
    Streams stream(1);
    stream[0].add(values.data(), 2 * values.size());
    Op op = op_of(Kind::kAllreduce, Dtype::kF16, 0, ReduceOp::kAverage, Scale{1.0, 1 / n});
    op.longest = stream[0].bytes();
    member.run(op, stream, stream);
    const auto is_near = [](uint16_t half) { return std::abs(f16_to_f32(half) - 60'000) < 100; };
    expect(std::all_of(values.begin(), values.end(), is_near), "the average is right");
  };
  testing::run_on_hosts(layout, testing::kSmallestChunk, run, kHalves);
}

TEST_CASE("operations and scales hold for every exchange, in place too") {
  constexpr std::array kScales = {Scale{}, Scale{0.5, 1.0}, Scale{1.0, 0.25}, Scale{2.0, 0.5}};
  constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct,
                               ReduceOp::kAverage};
  for (const ExchangeRules& rules : {kGathers, kHalves}) {
    for (const auto& layout : layouts_of(5)) {
      std::vector<Case> cases;
      uint32_t seed = 0;
      for (const Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReducescatter}) {
        for (const Dtype dtype : {Dtype::kF32, Dtype::kI32, Dtype::kBool}) {
          for (const ReduceOp reduce : kOps) {
            const Scale& scale = kScales[++seed % kScales.size()];
            const int n = static_cast<int>(layout.size());
            const Op op = op_of(kind, dtype, static_cast<int>(seed) % n, reduce, scale);
            cases.push_back(CaseMaker(op, n, 3001, seed, make_whole).make());
            cases.push_back(cases.back());
            cases.back().in_place = kind == Kind::kAllreduce;
          }
        }
      }
      run_all(layout, cases, rules);
    }
  }
}

TEST_CASE("chunks for too few blocks of sixteen hosts go in several windows") {
  for (const auto& layout : layouts_of(16)) {
    const int n = static_cast<int>(layout.size());
    std::vector<Case> cases;
    for (const Kind kind : {Kind::kAllreduce, Kind::kReducescatter}) {
      cases.push_back(CaseMaker(op_of(kind, Dtype::kI32), n, 150, 3, make_whole).make());
    }
    run_all(layout, cases, kHalves, 128);
  }
}

TEST_CASE("a rank is connected to its neighbours alone, whatever is summed and sent" *
          doctest::test_suite(testing::kSlowSanitized)) {
  const std::vector<int> layout = layouts_of(16)[0];
  std::array<std::atomic<int>, 16> opened{};
  const auto run = [&](HostedMember& member) {
    for (const size_t count : {size_t{1}, size_t{5'000}, size_t{150'000}}) {
      for (const Kind kind : {Kind::kAllreduce, Kind::kBroadcast}) {
        const Op op = op_of(kind, Dtype::kF32, static_cast<int>(count % 7));
        const Case c = CaseMaker(op, 16, count, 1, make_whole).make();
        testing::run_case(member, c, static_cast<size_t>(member.rank));
      }
    }
    member.run(op_of(Kind::kBarrier, Dtype::kU8), Streams(1), Streams(1));
    opened[static_cast<size_t>(member.rank)] = member.opened;
  };
  testing::run_on_hosts(layout, testing::kSmallestChunk, run);
  // 1, 2, 4 and 8 hosts before it and behind it.
  for (const std::atomic<int>& count : opened) CHECK(count <= 7);
}

TEST_CASE("more ranks than are exchanged with in a turn take several") {
  const std::vector<int> layout = [] {
    std::vector<int> hosts(70, 0);
    hosts.insert(hosts.end(), {1, 1, 1, 2});
    return hosts;
  }();
  std::vector<Case> cases;
  for (const Kind kind : {Kind::kAlltoall, Kind::kGather, Kind::kScatter}) {
    for (const int root : {0, 71, 73}) {
      cases.push_back(CaseMaker(op_of(kind, Dtype::kU8, root), 74, 37, 5).make());
    }
  }
  run_all(layout, cases, {});
}

}  // namespace
}  // namespace sirtaki
