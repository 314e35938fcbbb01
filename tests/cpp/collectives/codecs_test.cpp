#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "collective_case.h"
#include "doctest/doctest.h"
#include "virtual_hosts.h"

// Sums of numbers that are encoded on their way, on one host and between hosts, by each exchange.
namespace sirtaki {
namespace {

using testing::Bytes;
using testing::expect;
using testing::HostedMember;

const std::vector<std::vector<int>> kLayouts = {
    {0, 0},       {0, 0, 0},    {0, 1},          {0, 0, 1},       {0, 1, 0, 1},
    {0, 1, 1, 1}, {0, 1, 2, 3}, {0, 0, 1, 2, 2}, {0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 3, 3, 4, 5}};

/// Up to eight hosts all to all; gathered; halved; and in thirds.
constexpr std::array kRules = {
    ExchangeRules{},
    ExchangeRules{.direct_hosts = 8, .gathered_bytes = 0},
    ExchangeRules{.direct_hosts = 1},
    ExchangeRules{.direct_hosts = 1, .gathered_bytes = 0},
    ExchangeRules{.direct_hosts = 1, .gathered_bytes = 0, .radix = 3},
};
constexpr std::array kCounts = {size_t{1}, size_t{5}, size_t{1000}, size_t{30'011}};

using Floats = std::vector<float>;

/// Segments of these lengths and a last one with the rest, if there are so many numbers.
Segments cut_at(Floats& numbers, const std::vector<size_t>& lengths) {
  Segments segments;
  size_t at = 0;
  for (const size_t length : lengths) {
    if (at + length > numbers.size()) break;
    segments.add(numbers.data() + at, length * sizeof(float));
    at += length;
  }
  segments.add(numbers.data() + at, (numbers.size() - at) * sizeof(float));
  return segments;
}

Op sum_of(CodecId codec, size_t count, const Scale& scale = {}) {
  Op op = testing::encoding(testing::op_of(Kind::kAllreduce, Dtype::kF32), codec);
  op.scale = scale;
  op.longest = count * sizeof(float);
  return op;
}

/// Runs `body(member, count)` on every layout, by every exchange, for every count.
template <class Body>
void run_everywhere(Body body) {
  for (const auto& layout : kLayouts) {
    for (const ExchangeRules& rules : kRules) {
      const auto run = [&](HostedMember& member) {
        for (const size_t count : kCounts) body(member, count);
      };
      testing::run_on_hosts(layout, testing::kSmallestChunk, run, rules);
    }
  }
}

struct BlockCodec {
  CodecId id;
  int most;    ///< the whole number of a block's largest
  int values;  ///< of them from -most on
  float lost;  ///< of each number at most, of the block's largest
};
constexpr std::array kBlockCodecs = {BlockCodec{CodecId::kInt8, 127, 255, 1.0f / 254},
                                     BlockCodec{CodecId::kInt4, 8, 16, 1.01f / 8}};

/// Whole numbers from -most on, which each block has.
float whole(const BlockCodec& codec, size_t i) {
  const int value = i % 10 == 0 ? 0 : static_cast<int>(i * 7 % static_cast<size_t>(codec.values));
  return static_cast<float>(value - codec.most);
}

TEST_CASE("sums of whole numbers are exact in blocks that have the largest") {
  for (const BlockCodec& codec : kBlockCodecs) {
    run_everywhere([&](HostedMember& member, size_t count) {
      const int n = member.size;
      for (const Scale& scale : {Scale{}, Scale{0.5, 1.0}, Scale{1.0, 0.25}}) {
        Floats numbers(count);
        Floats expected(count);
        const auto factor = static_cast<float>(scale.pre * scale.post);
        for (size_t i = 0; i < count; ++i) {
          numbers[i] = whole(codec, i) * static_cast<float>(member.rank + 1);
          expected[i] = whole(codec, i) * static_cast<float>(n * (n + 1) / 2) * factor;
        }
        const Streams stream{cut_at(numbers, {10, 0, 130, 20'000})};
        member.run(sum_of(codec.id, count, scale), stream, stream);
        expect(numbers == expected, "the sum is exact");
      }
    });
  }
}

/// Checks a sum of any numbers on every layout.
void check_nearness(const BlockCodec& codec) {
  run_everywhere([&](HostedMember& member, size_t count) {
    const auto given_by = [&](int rank) {
      const Bytes bytes = testing::numbers(Dtype::kF32, count, static_cast<uint32_t>(rank));
      Floats numbers(count);
      std::memcpy(numbers.data(), bytes.data(), bytes.size());
      return numbers;
    };
    Floats mine = given_by(member.rank);
    const Floats before = mine;
    Floats result(count, -1.0f);
    const std::vector<size_t> lengths = {7, 61, 12'000};
    member.run(sum_of(codec.id, count), {cut_at(mine, lengths)}, {cut_at(result, lengths)});
    expect(mine == before, "inputs stay as they are");
    Floats exact(count);
    for (int rank = 0; rank < member.size; ++rank) {
      const Floats theirs = given_by(rank);
      for (size_t i = 0; i < count; ++i) exact[i] += theirs[i];
    }
    // Contributions, sums of hosts, those on three levels at most, and the result: each loses at
    // most so much of the largest, which is at most 1 for each rank.
    const float most = 6.01f * codec.lost * static_cast<float>(member.size);
    for (size_t i = 0; i < count; ++i) {
      expect(std::abs(result[i] - exact[i]) <= most, "each number is near");
    }
  });
}

TEST_CASE("a sum in blocks is as near as their steps allow, and the inputs stay as they are") {
  for (const BlockCodec& codec : kBlockCodecs) check_nearness(codec);
}

TEST_CASE("sums in blocks have the same bits on all ranks and in every run") {
  constexpr size_t kCount = 60'011;
  for (const auto& layout : kLayouts) {
    for (const ExchangeRules& rules : kRules) {
      const CodecId id = &rules == &kRules[1] ? CodecId::kInt4 : CodecId::kInt8;
      std::vector<Bytes> results(2 * layout.size());
      for (size_t run = 0; run < 2; ++run) {
        const auto body = [&](HostedMember& member) {
          Bytes data = testing::numbers(Dtype::kF32, kCount, static_cast<uint32_t>(member.rank));
          const Streams stream{testing::cut(data, sizeof(float), 5)};
          member.run(sum_of(id, kCount), stream, stream);
          results[run * layout.size() + static_cast<size_t>(member.rank)] = std::move(data);
        };
        testing::run_on_hosts(layout, testing::kSmallestChunk, body, rules);
      }
      for (const Bytes& result : results) CHECK(result == results[0]);
    }
  }
}

TEST_CASE("between hosts a codec of a dtype gives the bits of a sum in that dtype") {
  for (const auto& layout : kLayouts) {
    if (layout[1] == 0 && layout.back() == 0) continue;  // one host: the sum stays float32
    for (const ExchangeRules& rules : kRules) {
      const auto run = [&](HostedMember& member) {
        for (const size_t count : kCounts) {
          for (const CodecId id : {CodecId::kF16, CodecId::kBF16}) {
            for (const ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kMax}) {
              const auto rank = static_cast<uint32_t>(member.rank);
              Bytes floats = testing::numbers(Dtype::kF32, count, rank);
              Bytes halves = reference::encoded(id, floats);
              Op op = sum_of(id, count, Scale{1.0, 1.0 / 3});
              op.reduce = reduce;
              const Streams stream{testing::cut(floats, sizeof(float), rank)};
              member.run(op, stream, stream);
              op.dtype = id == CodecId::kF16 ? Dtype::kF16 : Dtype::kBF16;
              op.codec = CodecId::kNone;
              op.longest = halves.size();
              Streams half_stream(1);
              half_stream[0].add(halves.data(), halves.size());
              member.run(op, half_stream, half_stream);
              expect(floats == reference::decoded(id, halves, count), "both have the same bits");
            }
          }
        }
      };
      testing::run_on_hosts(layout, testing::kSmallestChunk, run, rules);
    }
  }
}

TEST_CASE("a block that is not finite is so on all ranks, and the others are not") {
  run_everywhere([](HostedMember& member, size_t count) {
    Floats numbers(count, 127.0f);
    if (member.rank == 1) numbers[count - 1] = HUGE_VALF;
    const Streams stream{cut_at(numbers, {})};
    member.run(sum_of(CodecId::kInt8, count), stream, stream);
    const size_t first = (count - 1) / reference::kInt8Block * reference::kInt8Block;
    for (size_t i = 0; i < count; ++i)
      expect(std::isnan(numbers[i]) == (i >= first), "NaN is seen");
  });
}

}  // namespace
}  // namespace sirtaki
