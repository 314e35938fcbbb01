#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "doctest/doctest.h"
#include "math_levels.h"
#include "math_reference.h"

// The blocks of int4, bit by bit.
namespace sirtaki {
namespace {

using reference::Bytes;
using Floats = std::vector<float>;

constexpr size_t kBlock = 60;
constexpr size_t kBytes = 32;

/// The nearest bfloat16, ties to even.
float to_bf16(float value) { return bf16_to_f32(f32_to_bf16(value)); }

/// The byte of a block's number, and by how much its four bits are shifted there.
std::pair<size_t, int> place_of(size_t number) { return {2 + number % 30, number < 30 ? 0 : 4}; }

struct Block {
  float scale;
  std::vector<int> whole;  ///< by number

  static Block of(const Floats& numbers) {
    float most = 0;
    bool positive = false;
    bool finite = true;
    for (const float number : numbers) {
      most = std::max(most, std::abs(number));
      finite = finite && std::isfinite(number);
    }
    for (const float number : numbers) positive = positive || number == most;
    Block block{0.0f, std::vector<int>(kBlock)};
    if (!finite) block.scale = std::nanf("");
    if (!finite || most < 0x1p-119f) return block;
    block.scale = to_bf16(positive ? -most / 8 : most / 8);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float steps = numbers[i] * (1 / block.scale);
      block.whole[i] = static_cast<int>(std::nearbyint(std::min(steps, 7.0f)));
    }
    return block;
  }

  Bytes bytes() const {
    Bytes result(kBytes);
    const uint16_t upper = f32_to_bf16(scale);
    std::memcpy(result.data(), &upper, sizeof upper);
    for (size_t i = 0; i < kBlock; ++i) {
      const auto [at, shift] = place_of(i);
      result[at] = static_cast<unsigned char>(result[at] | (whole[i] & 15) << shift);
    }
    return result;
  }

  float number(size_t i) const { return static_cast<float>(whole[i]) * scale; }
};

std::vector<Block> blocks_of(const Floats& numbers) {
  std::vector<Block> blocks;
  for (size_t begin = 0; begin < numbers.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, numbers.size());
    blocks.push_back(Block::of(
        {numbers.begin() + static_cast<long>(begin), numbers.begin() + static_cast<long>(end)}));
  }
  return blocks;
}

/// Of many magnitudes, about the same in a block; some blocks are tiny, 0 or not finite.
Floats some_numbers(size_t count) {
  std::mt19937 random(4);
  Floats numbers(count);
  for (size_t i = 0; i < count; ++i) {
    const auto block = static_cast<int>(i / kBlock);
    const auto unit = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000;
    numbers[i] = std::ldexp(unit, block % 9 * 30 - 123);
    if (block % 11 == 3) numbers[i] = 0;
    if (block % 17 == 9 && i % kBlock == 8) numbers[i] = -HUGE_VALF;
    if (block % 19 == 9 && i % kBlock == kBlock - 1) numbers[i] = NAN;
    if (block % 7 == 2 && i % kBlock == 57) numbers[i] = -std::ldexp(1.0f, block % 9 * 30 - 123);
    if (block % 5 == 1 && i % kBlock == 3) numbers[i] = std::ldexp(1.0f, block % 9 * 30 - 123);
  }
  return numbers;
}

Floats decoded(const Codec& codec, const Bytes& bytes, size_t count) {
  Floats result(count);
  const void* const sources[] = {bytes.data()};
  decode_fn(codec, ReduceOp::kSum)(result.data(), nullptr, sources, 1, count, {});
  return result;
}

Floats through(const Floats& numbers) {
  const Codec& codec = *find_codec(CodecId::kInt4);
  Bytes encoded(codec.bytes(numbers.size()));
  codec.encode(encoded.data(), numbers.data(), numbers.size());
  return decoded(codec, encoded, numbers.size());
}

TEST_CASE("blocks of int4 have the bits of their definition, at every SIMD level") {
  for (const Level level : testing::levels()) {
    CAPTURE(static_cast<int>(level));
    const Codec& codec = *find_codec(*find_kernels(level), CodecId::kInt4);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{59}, size_t{60}, size_t{61}, size_t{63},
                               size_t{121}, size_t{40'001}}) {
      CAPTURE(count);
      const Floats numbers = some_numbers(count);
      Bytes expected;
      Floats wide;
      for (const Block& block : blocks_of(numbers)) {
        const Bytes bytes = block.bytes();
        expected.insert(expected.end(), bytes.begin(), bytes.end());
        for (size_t i = 0; i < kBlock && wide.size() < count; ++i) wide.push_back(block.number(i));
      }
      Bytes target(expected.size());
      codec.encode(target.data(), numbers.data(), count);
      CHECK(target == expected);
      const Floats result = decoded(codec, expected, count);
      int wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        wrong += std::isnan(wide[i]) ? !std::isnan(result[i]) : wide[i] != result[i];
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("of a block's largest number int4 loses a 16th of each number, or an 8th at its border") {
  const Floats numbers = some_numbers(30'000);
  const Floats result = through(numbers);
  for (size_t begin = 0; begin < numbers.size(); begin += kBlock) {
    float most = 0;
    bool finite = true;
    for (size_t i = begin; i < begin + kBlock; ++i) {
      most = std::max(most, std::abs(numbers[i]));
      finite = finite && std::isfinite(numbers[i]);
    }
    for (size_t i = begin; i < begin + kBlock && finite; ++i) {
      const float lost = std::abs(numbers[i] - result[i]);
      const bool border = std::abs(numbers[i]) > most * 7.4f / 8;
      CHECK(lost <= std::max(most * (border ? 0.127f : 0.065f), 0x1p-119f));
    }
  }
}

TEST_CASE("whole numbers from -8 to 7 times one number pass int4 as they are, either sign") {
  Floats numbers;
  for (int i = 0; i < 200; ++i) numbers.push_back(static_cast<float>(i * 7 % 16 - 8));
  for (const float factor : {1.0f, -1.0f, 3.0f, 0x1p-100f, -0x1p100f}) {
    Floats scaled = numbers;
    for (float& number : scaled) number *= factor;
    CHECK(through(scaled) == scaled);
  }
}

TEST_CASE("a number that is not finite makes its block of int4 NaN, and no other") {
  for (const float odd : {HUGE_VALF, -HUGE_VALF, NAN}) {
    Floats numbers(3 * kBlock, 8);
    numbers[kBlock + 7] = odd;
    const Floats result = through(numbers);
    for (size_t i = 0; i < numbers.size(); ++i) {
      CHECK(std::isnan(result[i]) == (i / kBlock == 1));
    }
  }
}

}  // namespace
}  // namespace sirtaki
