#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "doctest/doctest.h"
#include "half_numbers.h"
#include "math/reduce.h"
#include "math/reduce_levels.h"
#include "math_levels.h"

namespace sirtaki {
namespace {

constexpr std::array kFloats = {Dtype::kF16, Dtype::kBF16, Dtype::kF32, Dtype::kF64};

std::vector<unsigned char> as(Dtype dtype, const std::vector<double>& numbers) {
  std::vector<unsigned char> bytes(numbers.size() * size_of(dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float single = static_cast<float>(numbers[i]);
    const uint16_t half = dtype == Dtype::kF16 ? f32_to_f16(single) : f32_to_bf16(single);
    const void* from = &half;
    if (dtype == Dtype::kF32) from = &single;
    if (dtype == Dtype::kF64) from = &numbers[i];
    std::memcpy(bytes.data() + i * size_of(dtype), from, size_of(dtype));
  }
  return bytes;
}

/// The products a·a, a·b and b·b.
std::array<double, 3> products(Level level, Dtype dtype, const std::vector<double>& a,
                               const std::vector<double>& b) {
  const auto left = as(dtype, a);
  const auto right = as(dtype, b);
  const void* const sources[] = {left.data(), right.data()};
  double gram[4] = {};
  add_gram(*find_kernels(level), gram, dtype, sources, 2, a.size());
  return {gram[0], gram[1], gram[3]};
}

TEST_CASE("products of small whole numbers are summed exactly at each level") {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> numbers(-4, 4);
  for (const Level level : testing::levels()) {
    for (const Dtype dtype : kFloats) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{5000}}) {
        std::vector<double> a(count);
        std::vector<double> b(count);
        std::array<double, 3> expected = {};
        for (size_t i = 0; i < count; ++i) {
          a[i] = numbers(random);
          b[i] = numbers(random);
          expected[0] += a[i] * a[i];
          expected[1] += a[i] * b[i];
          expected[2] += b[i] * b[i];
        }
        CHECK(products(level, dtype, a, b) == expected);
      }
    }
  }
}

TEST_CASE("products are of float64, in which those of float32 neither overflow nor vanish") {
  for (const Level level : testing::levels()) {
    for (const Dtype dtype : {Dtype::kBF16, Dtype::kF32}) {
      for (const double number : {0x1p-126, 0x1p127}) {
        const std::vector<double> numbers(100, number);
        CHECK(products(level, dtype, numbers, numbers)[1] == 100 * number * number);
      }
    }
  }
}

TEST_CASE("every source is multiplied with itself and each one behind it, however many there are") {
  for (const Level level : testing::levels()) {
    for (const Dtype dtype : kFloats) {
      for (int n = 1; n <= 5; ++n) {
        std::vector<std::vector<unsigned char>> sources;
        std::vector<const void*> pointers;
        for (int k = 0; k < n; ++k) sources.push_back(as(dtype, std::vector<double>(1500, k + 1)));
        for (const auto& source : sources) pointers.push_back(source.data());
        std::vector<double> gram(static_cast<size_t>(n * n), 7);
        add_gram(*find_kernels(level), gram.data(), dtype, pointers.data(), n, 1500);
        for (int i = 0; i < n; ++i) {
          for (int j = 0; j < n; ++j) {
            const double expected = i <= j ? 7 + 1500 * (i + 1) * (j + 1) : 7;
            CHECK(gram[static_cast<size_t>(i * n + j)] == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("products of whole numbers are refused") {
  CHECK_THROWS_AS(products(Level::kBaseline, Dtype::kI32, {}, {}), Error);
}

}  // namespace
}  // namespace sirtaki
