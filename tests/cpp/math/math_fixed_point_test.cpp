#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "math/fixed_point.h"
#include "math_levels.h"

namespace sirtaki {
namespace {

constexpr size_t kCount = 5003;  // leaves a rest at each level

std::vector<uint32_t> some_words(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> words(kCount);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  return words;
}

TEST_CASE("numbers are added in fixed point with the same bits at each level") {
  const std::vector<uint32_t> words = some_words(1);
  for (int exponent : {-60, -3, 0, 24, 100, 149}) {
    // Below the limit of this exponent, or all would be undefined.
    std::vector<uint32_t> values = words;
    for (uint32_t& value : values) {
      const float number = std::bit_cast<float>(value);
      if (!(number * number * 0x1p-2f < 0x1p100f) || exponent > 20) value &= 0x8fffffff;
    }
    for (size_t format = 0; format < 3; ++format) {
      std::vector<std::vector<int64_t>> sums;
      std::vector<Magnitudes> seen;
      for (const Level level : testing::levels()) {
        const FixedKernels& kernels = find_kernels(level)->fixed[format];
        std::vector<int64_t> sum(kCount, -7);
        kernels.to[static_cast<size_t>(FixedMode::kSet)](sum.data(), values.data(), kCount,
                                                         exponent);
        seen.push_back(kernels.to[static_cast<size_t>(FixedMode::kAdd)](sum.data(), values.data(),
                                                                        kCount, exponent));
        sums.push_back(std::move(sum));
      }
      for (size_t level = 1; level < sums.size(); ++level) {
        CHECK(sums[level] == sums[0]);
        CHECK(seen[level].largest == seen[0].largest);
        CHECK(seen[level].special == seen[0].special);
      }
    }
  }
}

TEST_CASE("sums are rounded with the same bits at each level") {
  std::mt19937_64 random(2);
  std::vector<int64_t> sums(kCount);
  for (int64_t& sum : sums) sum = static_cast<int64_t>(random()) >> (3 + random() % 50);
  for (const int exponent : {-60, 0, 24, 149}) {
    for (const int64_t divisor : {int64_t{1}, int64_t{12}, int64_t{4095}}) {
      for (size_t format = 0; format < 3; ++format) {
        std::vector<std::vector<uint32_t>> results;
        for (const Level level : testing::levels()) {
          std::vector<uint32_t> result(kCount);
          find_kernels(level)->fixed[format].from(result.data(), sums.data(), kCount, exponent,
                                                  divisor);
          results.push_back(std::move(result));
        }
        for (const auto& result : results) CHECK(result == results[0]);
      }
    }
  }
}

TEST_CASE("a sum halfway between two numbers is rounded to the even one") {
  constexpr RoundTo kFloat32{24, -149, 0x7f800000};
  CHECK(round_fixed((1 << 24) + 1, 0, 1, kFloat32) == std::bit_cast<uint32_t>(0x1p24f));
  CHECK(round_fixed((1 << 24) + 3, 0, 1, kFloat32) == std::bit_cast<uint32_t>(16777220.0f));
  CHECK(round_fixed(1, 150, 1, kFloat32) == 0);
  CHECK(round_fixed(3, 150, 1, kFloat32) == 2);
  CHECK(round_fixed(uint64_t{1} << 61, -70, 1, kFloat32) == 0x7f800000);
}

}  // namespace
}  // namespace sirtaki
