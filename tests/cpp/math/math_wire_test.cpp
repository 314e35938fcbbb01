#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "doctest/doctest.h"
#include "math/reduce_levels.h"
#include "math_reference.h"

namespace sirtaki {
namespace {

using reference::Bytes;

constexpr std::array kWires = {WireFormat::kF16, WireFormat::kBF16};
constexpr std::array kOps = {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

std::vector<Level> levels() {
  std::vector<Level> available;
  for (const Level level : {Level::kBaseline, Level::kV3, Level::kV4}) {
    if (level_available(level)) available.push_back(level);
  }
  return available;
}

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
    round_fn(WireFormat::kBF16)(result.data(), floats.data(), result.size());
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

TEST_CASE("all SIMD levels round alike, whatever the bits and the number of them") {
  const Bytes floats = any_floats(2);
  for (const WireFormat wire : kWires) {
    for (const Level level : levels()) {
      CAPTURE(name(wire));
      CAPTURE(static_cast<int>(level));
      const Bytes expected = reference::rounded(wire, floats);
      for (const size_t count : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, count_of(floats)}) {
        Bytes target(expected.size(), 0xee);
        round_fn_for_level(level, wire)(target.data(), floats.data(), count);
        Bytes whole(expected.begin(), expected.begin() + static_cast<long>(count * kWireBytes));
        whole.resize(expected.size(), 0xee);  // nothing behind them is written
        CHECK(target == whole);
      }
    }
  }
}

/// Checks a kernel of a level against the rules, for float32 that its sources stand for.
void check_fold(ReduceFn reduce, ReduceOp op, const std::vector<Bytes>& sources,
                const std::vector<Bytes>& wide, const Scale& scale) {
  std::vector<const void*> srcs;
  for (const Bytes& source : sources) srcs.push_back(source.data());
  const size_t count = count_of(wide[0]);
  Bytes expected(wide[0].size());
  reference::reduce(Dtype::kF32, op, wide, count, scale, expected);
  reference::unify_nans(Dtype::kF32, expected);
  Bytes dst(expected.size());
  Bytes copy(expected.size());
  reduce(dst.data(), copy.data(), srcs.data(), static_cast<int>(srcs.size()), count, scale);
  reference::unify_nans(Dtype::kF32, dst);
  reference::unify_nans(Dtype::kF32, copy);
  CHECK(dst == expected);
  CHECK(copy == expected);
}

TEST_CASE("numbers are folded in float32, in order, whether rounded before or when they are read") {
  for (const WireFormat wire : kWires) {
    std::vector<Bytes> floats;
    std::vector<Bytes> halves;
    std::vector<Bytes> wide;
    for (const uint32_t seed : {3, 4, 5}) {
      floats.push_back(any_floats(seed));
      halves.push_back(reference::rounded(wire, floats.back()));
      wide.push_back(reference::widened(wire, halves.back()));
      for (const ReduceOp op : kOps) {
        for (const Scale& scale : {Scale{}, Scale{0.9, 1.0 / 3}}) {
          for (const Level level : levels()) {
            CAPTURE(name(wire));
            CAPTURE(static_cast<int>(level));
            CAPTURE(floats.size());
            check_fold(widening_reduce_fn_for_level(level, wire, op), op, halves, wide, scale);
            check_fold(rounding_reduce_fn_for_level(level, wire, op), op, floats, wide, scale);
          }
        }
      }
    }
  }
}

TEST_CASE("what float32 cannot be reduced by, the wire cannot either") {
  CHECK_THROWS_AS(widening_reduce_fn(WireFormat::kBF16, ReduceOp::kBitOr), Error);
  CHECK_THROWS_AS(rounding_reduce_fn(WireFormat::kBF16, ReduceOp::kAdasum), Error);
  CHECK_THROWS_AS(round_fn(WireFormat::kOwn), Error);
}

}  // namespace
}  // namespace sirtaki
