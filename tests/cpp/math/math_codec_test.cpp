#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "doctest/doctest.h"
#include "math_levels.h"
#include "math_reference.h"

namespace sirtaki {
namespace {

using reference::Bytes;

constexpr std::array kOps = {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

/// Any bits, and after them each exponent with the bits that decide how it is rounded.
Bytes any_floats(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> all;
  for (int i = 0; i < 20'000; ++i) all.push_back(static_cast<uint32_t>(random()));
  for (uint32_t upper = 0; upper < 0x10000; upper += 0x40) {
    for (const uint32_t lower : {0u, 1u, 0x1000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      all.push_back(upper << 16 | lower);
      all.push_back((upper | 1) << 16 | lower);
      all.push_back(upper << 16 | 0x3f0000 | lower);
    }
  }
  Bytes bytes(all.size() * sizeof(uint32_t));
  std::memcpy(bytes.data(), all.data(), bytes.size());
  return bytes;
}

/// Of many magnitudes, in one block of about the same; some blocks are 0, or not finite.
Bytes some_floats(uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes;
  for (int i = 0; i < 12'345; ++i) {
    const int block = i / 60;
    const float unit = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000;
    float number = std::ldexp(unit, static_cast<int>(block % 7) * 30 - 100);
    if (block % 11 == 3) number = 0;
    if (block % 13 == 5) number *= 0x1p-120f;
    if (block % 17 == 9 && i % 60 == 8) number = HUGE_VALF;
    if (block % 19 == 9 && i % 60 == 59) number = NAN;
    const auto* const from = reinterpret_cast<const unsigned char*>(&number);
    bytes.insert(bytes.end(), from, from + sizeof number);
  }
  return bytes;
}

size_t count_of(const Bytes& floats) { return floats.size() / sizeof(float); }

/// The upper half of a float32 that is rounded to nearest, ties to even.
uint16_t bf16_by_definition(uint32_t bits) {
  const uint32_t lower = bits & 0xffff;
  auto upper = static_cast<uint16_t>(bits >> 16);
  if ((bits & 0x7fffffff) > 0x7f800000) return upper | 0x40;
  if (lower > 0x8000 || (lower == 0x8000 && upper % 2 == 1)) ++upper;
  return upper;
}

TEST_CASE("a float32 becomes the nearest bfloat16, ties to even, and a NaN a quiet one") {
  const Bytes floats = any_floats(1);
  const std::vector<uint16_t> rounded = [&] {
    std::vector<uint16_t> result(count_of(floats));
    find_codec(CodecId::kBF16)->encode(result.data(), floats.data(), result.size());
    return result;
  }();
  int wrong = 0;
  for (size_t i = 0; i < rounded.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, floats.data() + i * sizeof bits, sizeof bits);
    wrong += rounded[i] != bf16_by_definition(bits);
  }
  CHECK(wrong == 0);
}

Bytes first_of(const Bytes& floats, size_t count) {
  return {floats.begin(), floats.begin() + static_cast<long>(count * sizeof(float))};
}

TEST_CASE("all SIMD levels encode alike, whatever the bits and the number of them") {
  for (const CodecId id : reference::codecs()) {
    const Bytes floats = id >= CodecId::kInt8 ? some_floats(2) : any_floats(2);
    for (const Level level : testing::levels()) {
      CAPTURE(name(id));
      CAPTURE(static_cast<int>(level));
      const Codec& codec = *find_codec(*find_kernels(level), id);
      for (const size_t count : {size_t{0}, size_t{1}, size_t{60}, size_t{61}, size_t{63},
                                 size_t{64}, size_t{121}, count_of(floats)}) {
        CAPTURE(count);
        Bytes expected = reference::encoded(id, first_of(floats, count));
        CHECK(codec.bytes(count) == expected.size());
        Bytes target(expected.size() + 99, 0xee);
        codec.encode(target.data(), floats.data(), count);
        expected.resize(target.size(), 0xee);  // nothing behind them is written
        CHECK(target == expected);
      }
    }
  }
}

/// Checks a kernel against the rules, for float32 that its sources stand for.
void check_decoding(ReduceFn decode, ReduceOp op, const std::vector<Bytes>& sources,
                    const std::vector<Bytes>& wide, const Scale& scale) {
  std::vector<const void*> srcs;
  for (const Bytes& source : sources) srcs.push_back(source.data());
  const size_t count = count_of(wide[0]);
  Bytes expected(wide[0].size());
  reference::reduce(Dtype::kF32, op, wide, count, scale, expected);
  reference::unify_nans(Dtype::kF32, expected);
  Bytes dst(expected.size());
  Bytes copy(expected.size());
  decode(dst.data(), copy.data(), srcs.data(), static_cast<int>(srcs.size()), count, scale);
  reference::unify_nans(Dtype::kF32, dst);
  reference::unify_nans(Dtype::kF32, copy);
  CHECK(dst == expected);
  CHECK(copy == expected);
}

/// The same of one whose results are encoded as well.
void check_recoding(const Codec& codec, CodecId id, ReduceOp op, std::vector<Bytes> sources,
                    const std::vector<Bytes>& wide, const Scale& scale) {
  std::vector<const void*> srcs;
  for (const Bytes& source : sources) srcs.push_back(source.data());
  const size_t count = count_of(wide[0]);
  Bytes sum(wide[0].size());
  reference::reduce(Dtype::kF32, op, wide, count, scale, sum);
  const Bytes seen = reference::decoded(id, reference::encoded(id, sum), count);
  Bytes dst(sources[0].size());
  const size_t whole = codec.numbers(dst.size());
  const auto n = static_cast<int>(srcs.size());
  recode_fn(codec, op)(dst.data(), nullptr, srcs.data(), n, whole, scale);
  Bytes got = reference::decoded(id, dst, count);
  Bytes expected = seen;
  reference::unify_nans(Dtype::kF32, got);
  reference::unify_nans(Dtype::kF32, expected);
  CHECK(got == expected);
  recode_fn(codec, op)(sources[0].data(), nullptr, srcs.data(), n, whole, scale);
  CHECK(sources[0] == dst);
}

TEST_CASE("encoded numbers are folded in float32, in order, and may be encoded again") {
  for (const CodecId id : reference::codecs()) {
    std::vector<Bytes> sources;
    std::vector<Bytes> wide;
    for (const uint32_t seed : {3, 4, 5}) {
      const Bytes floats = id >= CodecId::kInt8 ? some_floats(seed) : any_floats(seed);
      sources.push_back(reference::encoded(id, floats));
      wide.push_back(reference::decoded(id, sources.back(), count_of(floats)));
      for (const ReduceOp op : kOps) {
        if (!has_reduction(id, op)) continue;
        for (const Scale& scale : {Scale{}, Scale{0.9, 1.0 / 3}}) {
          for (const Level level : testing::levels()) {
            CAPTURE(name(id));
            CAPTURE(static_cast<int>(level));
            CAPTURE(sources.size());
            const Codec& codec = *find_codec(*find_kernels(level), id);
            check_decoding(decode_fn(codec, op), op, sources, wide, scale);
            check_recoding(codec, id, op, sources, wide, scale);
          }
        }
      }
    }
  }
}

TEST_CASE("every codec has whole blocks in a line") {
  for (const CodecId id : reference::codecs()) {
    CAPTURE(name(id));
    CHECK(kCodecLine % find_codec(id)->block_bytes == 0);
    CHECK(find_codec(id)->numbers(kCodecLine) <= kMostNumbers * kCodecLine);
  }
  CHECK(find_codec(CodecId::kNone) == nullptr);
}

TEST_CASE("what float32 cannot be reduced by, encoded numbers cannot either") {
  const Codec& codec = *find_codec(CodecId::kBF16);
  CHECK_THROWS_AS(decode_fn(codec, ReduceOp::kBitOr), Error);
  CHECK_THROWS_AS(recode_fn(codec, ReduceOp::kAdasum), Error);
  CHECK_THROWS_AS(decode_fn(*find_codec(CodecId::kInt8), ReduceOp::kMin), Error);
}

// ---- int8 ----

std::vector<float> through_int8(const std::vector<float>& numbers) {
  const Codec& codec = *find_codec(CodecId::kInt8);
  Bytes encoded(codec.bytes(numbers.size()));
  codec.encode(encoded.data(), numbers.data(), numbers.size());
  std::vector<float> result(numbers.size());
  const void* const sources[] = {encoded.data()};
  decode_fn(codec, ReduceOp::kSum)(result.data(), nullptr, sources, 1, result.size(), {});
  return result;
}

TEST_CASE("of a block's largest number int8 loses at most a 254th of each number") {
  const Bytes bytes = some_floats(6);
  std::vector<float> numbers(count_of(bytes));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  const std::vector<float> result = through_int8(numbers);
  for (size_t begin = 0; begin < numbers.size(); begin += reference::kInt8Block) {
    const size_t end = std::min(begin + reference::kInt8Block, numbers.size());
    float most = 0;
    float lost = 0;
    for (size_t i = begin; i < end; ++i) {
      most = std::max(most, std::abs(numbers[i]));
      lost = std::max(lost, std::abs(numbers[i] - result[i]));
    }
    CHECK(lost <= std::max(most * (1.00001f / 254), 0x1p-119f));
  }
}

TEST_CASE("whole numbers up to 127 times one number pass int8 as they are") {
  std::vector<float> numbers;
  for (int i = -127; i <= 127; ++i) numbers.push_back(static_cast<float>(i));
  for (size_t i = 0; i < numbers.size(); i += reference::kInt8Block) numbers[i] = 127;
  for (const float factor : {1.0f, 3.0f, 0x1p-100f, 0x1p100f}) {
    std::vector<float> scaled = numbers;
    for (float& number : scaled) number *= factor;
    CHECK(through_int8(scaled) == scaled);
  }
}

TEST_CASE("a number that is not finite makes its block of int8 NaN, and no other") {
  for (const float odd : {HUGE_VALF, -HUGE_VALF, NAN}) {
    std::vector<float> numbers(3 * reference::kInt8Block, 127);
    numbers[reference::kInt8Block + 7] = odd;
    const std::vector<float> result = through_int8(numbers);
    for (size_t i = 0; i < numbers.size(); ++i) {
      CHECK(std::isnan(result[i]) == (i / reference::kInt8Block == 1));
    }
  }
}

// ---- error feedback ----

TEST_CASE("what was sent and what is kept back add up to what was given") {
  for (const CodecId id : {CodecId::kBF16, CodecId::kInt8, CodecId::kInt4}) {
    CAPTURE(name(id));
    constexpr size_t kCount = 10'007;
    std::mt19937 random(7);
    std::vector<double> given(kCount);
    std::vector<double> sent(kCount);
    std::vector<float> residual(kCount);
    for (int step = 0; step < 20; ++step) {
      std::vector<float> numbers(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        // Multiples of a power of two, so that no addition rounds.
        numbers[i] = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1024;
        given[i] += static_cast<double>(numbers[i]);
      }
      feed_back(*find_codec(id), numbers.data(), residual.data(), kCount);
      Bytes bytes(kCount * sizeof(float));
      std::memcpy(bytes.data(), numbers.data(), bytes.size());
      const Bytes seen = reference::decoded(id, reference::encoded(id, bytes), kCount);
      for (size_t i = 0; i < kCount; ++i) {
        sent[i] += static_cast<double>(reference::float_at(seen, i));
      }
    }
    double most = 0;
    double kept = 0;
    for (size_t i = 0; i < kCount; ++i) {
      most = std::max(most, std::abs(given[i] - sent[i] - static_cast<double>(residual[i])));
      kept = std::max(kept, std::abs(static_cast<double>(residual[i])));
    }
    CHECK(most < 1e-5);  // additions of float32 round
    CHECK(kept > 0);
    CHECK(kept < (id == CodecId::kInt4 ? 0.2 : 0.01));
  }
}

TEST_CASE("of what is not finite nothing is kept back") {
  std::vector<float> numbers(130, 0.3f);
  numbers[0] = HUGE_VALF;
  std::vector<float> residual(130, 0.25f);
  feed_back(*find_codec(CodecId::kInt8), numbers.data(), residual.data(), numbers.size());
  for (size_t i = 0; i < 60; ++i) CHECK(residual[i] == 0.0f);
  CHECK(numbers[1] == 0.55f);
}

}  // namespace
}  // namespace sirtaki
