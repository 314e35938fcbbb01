#include <array>
#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "collective_case.h"
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

constexpr std::array kHosts = {2, 3, 4, 5, 8, 16};
constexpr size_t kAlways = 0;
constexpr size_t kNever = std::numeric_limits<size_t>::max();

/// Nobody talks to everybody; what is not gathered is halved.
constexpr ExchangeRules kGathers{.direct_hosts = 1, .ring_bytes = kNever};
constexpr ExchangeRules kHalves{.direct_hosts = 1, .ring_bytes = kNever, .gathered_bytes = 0};
constexpr ExchangeRules kRings{.direct_hosts = 1, .ring_bytes = kAlways, .gathered_bytes = 0};

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
  testing::run_on_hosts(layout, chunk, run, 1, rules);
}

/// Runs a collective at every number of hosts, with no, some and many elements, and each time
/// another root.
void run_everywhere(Kind kind, const ExchangeRules& rules, const std::vector<size_t>& counts) {
  for (const int hosts : kHosts) {
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

TEST_CASE("a barrier of doubling steps lets nobody through before everybody has come") {
  for (const int hosts : kHosts) {
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
      testing::run_on_hosts(layout, testing::kSmallestChunk, run, 1, kGathers);
    }
  }
}

TEST_CASE("sums are halved and doubled among any number of hosts") {
  for (const Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReducescatter}) {
    run_everywhere(kind, kHalves, {1, 100, 10'001});
  }
}

TEST_CASE("sums go round a ring of any number of hosts") {
  for (const Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReducescatter}) {
    run_everywhere(kind, kRings, {1, 100, 10'001});
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
  testing::run_on_hosts(layout, testing::kSmallestChunk, run, 1, rules);
  return results;
}

TEST_CASE("sums that are gathered in steps have the bits of those that all hosts send to all") {
  for (const int hosts : kHosts) {
    for (const auto& layout : layouts_of(hosts)) {
      for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
        const Bytes direct = sums_of(layout, dtype, 1001, {.direct_hosts = 100})[0];
        for (const Bytes& sum : sums_of(layout, dtype, 1001, kGathers)) CHECK(sum == direct);
      }
    }
  }
}

}  // namespace
}  // namespace sirtaki
