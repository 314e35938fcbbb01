#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "doctest/doctest.h"
#include "math/reduce_levels.h"
#include "math_levels.h"
#include "math_reference.h"

namespace sirtaki {
namespace {

using reference::Bytes;

constexpr std::array kDtypes = {Dtype::kBool, Dtype::kU8,  Dtype::kI8,  Dtype::kI16,
                                Dtype::kI32,  Dtype::kI64, Dtype::kF16, Dtype::kBF16,
                                Dtype::kF32,  Dtype::kF64, Dtype::kU16, Dtype::kU32,
                                Dtype::kU64,  Dtype::kC32, Dtype::kC64, Dtype::kC128};
constexpr std::array kReductions = {ReduceOp::kAverage, ReduceOp::kSum,     ReduceOp::kMin,
                                    ReduceOp::kMax,     ReduceOp::kProduct, ReduceOp::kBitAnd,
                                    ReduceOp::kBitOr,   ReduceOp::kBitXor};
constexpr std::array kCounts = {size_t{0}, size_t{1}, size_t{3}, size_t{64}, size_t{1000}};

// Any bits: every special value of the narrow formats occurs.
Bytes any_bits(size_t size, std::mt19937& random) {
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

// Stores `number` as the i-th element.
void put(Dtype dtype, Bytes& bytes, size_t i, double number) {
  const float single = static_cast<float>(number);
  const uint16_t half = dtype == Dtype::kF16 ? f32_to_f16(single) : f32_to_bf16(single);
  const void* const from = dtype == Dtype::kF64   ? static_cast<const void*>(&number)
                           : dtype == Dtype::kF32 ? static_cast<const void*>(&single)
                                                  : static_cast<const void*>(&half);
  std::memcpy(bytes.data() + i * size_of(dtype), from, size_of(dtype));
}

// Numbers in [-2, 2) for floats, so that sums need rounding and products stay finite.
Bytes ordinary(Dtype dtype, size_t count, std::mt19937& random) {
  const Dtype part = reference::part_of(dtype);
  if (!is_floating(part)) return any_bits(count * size_of(dtype), random);
  std::uniform_real_distribution<double> numbers(-2.0, 2.0);
  Bytes bytes(count * size_of(dtype));
  for (size_t i = 0; i < bytes.size() / size_of(part); ++i) {
    const double number = numbers(random);
    put(part, bytes, i, number);
  }
  return bytes;
}

std::vector<const void*> pointers(const std::vector<Bytes>& buffers) {
  std::vector<const void*> all;
  for (const auto& buffer : buffers) all.push_back(buffer.data());
  return all;
}

// Reduces one element of each source at the best level.
template <typename T>
T reduced(Dtype dtype, ReduceOp op, std::vector<T> sources, Scale scale = {}) {
  std::vector<const void*> srcs;
  for (const T& source : sources) srcs.push_back(&source);
  T result{};
  reduce_fn(dtype, op)(&result, nullptr, srcs.data(), static_cast<int>(srcs.size()), 1, scale);
  return result;
}

void check_against_reference(Level level, Dtype dtype, ReduceOp op, int n, size_t count,
                             Scale scale, std::mt19937& random) {
  std::vector<Bytes> sources;
  for (int k = 0; k < n; ++k) sources.push_back(ordinary(dtype, count, random));
  Bytes expected(count * size_of(dtype));
  reference::reduce(dtype, op, sources, count, scale, expected);

  Bytes dst(expected.size());
  Bytes copy(expected.size());
  const ReduceFn reduce = reduce_fn(*find_kernels(level), dtype, op);
  reduce(dst.data(), nullptr, pointers(sources).data(), n, count, scale);
  CHECK(dst == expected);
  dst.assign(dst.size(), 0xee);
  reduce(dst.data(), copy.data(), pointers(sources).data(), n, count, scale);
  CHECK(dst == expected);
  CHECK(copy == expected);
}

TEST_CASE("reduction gives what the rules say, for every dtype, op and number of sources") {
  std::mt19937 random(1);
  const std::array<Scale, 4> scales = {Scale{}, Scale{0.3, 1.0}, Scale{1.0, 1.0 / 3},
                                       Scale{-1.7, 0.6}};
  for (const Level level : testing::levels()) {
    for (const Dtype dtype : kDtypes) {
      CAPTURE(static_cast<int>(level));
      CAPTURE(name(dtype));
      for (const ReduceOp op : kReductions) {
        if (!has_reduction(dtype, op)) continue;
        for (const int n : {1, 2, 3, 4, 7}) {
          for (const size_t count : kCounts) {
            for (const Scale& scale : scales) {
              check_against_reference(level, dtype, op, n, count, scale, random);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("all SIMD levels agree bit for bit on any bits, NaNs compared as one") {
  std::mt19937 random(2);
  constexpr size_t kCount = 20000;
  for (const Dtype dtype : kDtypes) {
    for (const ReduceOp op : kReductions) {
      if (!has_reduction(dtype, op)) continue;
      std::vector<Bytes> sources;
      for (int k = 0; k < 3; ++k) sources.push_back(any_bits(kCount * size_of(dtype), random));
      for (const Scale& scale : {Scale{}, Scale{0.9, 1.1}}) {
        Bytes expected(kCount * size_of(dtype));
        reference::reduce(dtype, op, sources, kCount, scale, expected);
        reference::unify_nans(dtype, expected);
        for (const Level level : testing::levels()) {
          CAPTURE(name(dtype));
          CAPTURE(static_cast<int>(level));
          CAPTURE(static_cast<int>(op));
          Bytes dst(expected.size());
          reduce_fn(*find_kernels(level), dtype, op)(dst.data(), nullptr, pointers(sources).data(),
                                                     3, kCount, scale);
          reference::unify_nans(dtype, dst);
          CHECK(dst == expected);
        }
      }
    }
  }
}

TEST_CASE("the destination and the copy may be any of the sources") {
  std::mt19937 random(3);
  constexpr size_t kCount = 1000;
  for (const Level level : testing::levels()) {
    for (const Dtype dtype : kDtypes) {
      for (const size_t n : {size_t{2}, size_t{3}}) {
        std::vector<Bytes> sources;
        for (size_t k = 0; k < n; ++k) sources.push_back(ordinary(dtype, kCount, random));
        Bytes expected(kCount * size_of(dtype));
        reference::reduce(dtype, ReduceOp::kSum, sources, kCount, {}, expected);
        for (size_t own = 0; own < n; ++own) {
          std::vector<Bytes> work = sources;
          const size_t other = (own + 1) % n;
          reduce_fn(*find_kernels(level), dtype, ReduceOp::kSum)(
              work[own].data(), work[other].data(), pointers(work).data(), static_cast<int>(n),
              kCount, {});
          CHECK(work[own] == expected);
          CHECK(work[other] == expected);
        }
      }
    }
  }
}

TEST_CASE("buffers need no alignment and nothing beside them is written") {
  std::mt19937 random(4);
  for (const Level level : testing::levels()) {
    for (const Dtype dtype : kDtypes) {
      const ReduceOp op = is_complex(dtype) ? ReduceOp::kProduct : ReduceOp::kMax;
      for (const size_t count : {size_t{5}, size_t{64}, size_t{333}}) {
        const size_t size = count * size_of(dtype);
        const std::vector<Bytes> sources = {ordinary(dtype, count, random),
                                            ordinary(dtype, count, random)};
        Bytes expected(size);
        reference::reduce(dtype, op, sources, count, {}, expected);
        expected.insert(expected.begin(), 0xee);
        expected.push_back(0xee);

        Bytes first = sources[0];
        first.insert(first.begin(), 0);
        const void* const srcs[] = {first.data() + 1, sources[1].data()};
        Bytes dst(size + 2, 0xee);
        Bytes copy(size + 2, 0xee);
        reduce_fn(*find_kernels(level), dtype, op)(dst.data() + 1, copy.data() + 1, srcs, 2, count,
                                                   {});
        CHECK(dst == expected);
        CHECK(copy == expected);
      }
    }
  }
}

TEST_CASE("16-bit floats are rounded once, after the last source") {
  // 2048 + 1 is a tie in float16 and would go back to 2048, as 256 + 1 in bfloat16 to 256.
  const uint16_t one = f32_to_f16(1.0f);
  CHECK(f16_to_f32(reduced<uint16_t>(Dtype::kF16, ReduceOp::kSum, {f32_to_f16(2048), one, one})) ==
        2050.0f);
  const uint16_t brain_one = f32_to_bf16(1.0f);
  CHECK(bf16_to_f32(reduced<uint16_t>(Dtype::kBF16, ReduceOp::kSum,
                                      {f32_to_bf16(256), brain_one, brain_one})) == 258.0f);
}

TEST_CASE("a 16-bit average does not overflow on the way") {
  const uint16_t large = f32_to_f16(60000.0f);
  CHECK(reduced<uint16_t>(Dtype::kF16, ReduceOp::kAverage, {large, large}, {1.0, 0.5}) == large);
}

TEST_CASE("scaled integers are truncated toward zero") {
  CHECK(reduced<int32_t>(Dtype::kI32, ReduceOp::kSum, {-3}, {1.0, 0.5}) == -1);
  CHECK(reduced<int32_t>(Dtype::kI32, ReduceOp::kSum, {3}, {1.0, 0.5}) == 1);
  CHECK(reduced<int32_t>(Dtype::kI32, ReduceOp::kSum, {-3, -3}, {0.5, 1.0}) == -2);
  CHECK(reduced<int8_t>(Dtype::kI8, ReduceOp::kMin, {-7, 5}, {1.0, 0.25}) == -1);
}

TEST_CASE("scaled integers are clamped to the range of their type") {
  CHECK(reduced<int8_t>(Dtype::kI8, ReduceOp::kSum, {100}, {2.0, 1.0}) == 127);
  CHECK(reduced<int8_t>(Dtype::kI8, ReduceOp::kSum, {100}, {-2.0, 1.0}) == -128);
  CHECK(reduced<uint8_t>(Dtype::kU8, ReduceOp::kSum, {100}, {-1.0, 1.0}) == 0);
  CHECK(reduced<uint16_t>(Dtype::kU16, ReduceOp::kSum, {40000}, {2.0, 1.0}) == 65535);
  CHECK(reduced<uint64_t>(Dtype::kU64, ReduceOp::kSum, {1}, {1e300, 1.0}) == UINT64_MAX);
  CHECK(reduced<int64_t>(Dtype::kI64, ReduceOp::kSum, {1}, {1e300, 1.0}) == INT64_MAX);
  CHECK(reduced<int64_t>(Dtype::kI64, ReduceOp::kSum, {1}, {-1e300, 1.0}) == INT64_MIN);
  CHECK(reduced<int32_t>(Dtype::kI32, ReduceOp::kSum, {7}, {std::nan(""), 1.0}) == 0);
}

TEST_CASE("integers times zero are zero, also those that no float64 represents") {
  constexpr int64_t kLong = (int64_t{1} << 60) + 1;
  for (const double zero : {0.0, -0.0}) {
    for (const Scale scale : {Scale{zero, 1.0}, Scale{1.0, zero}}) {
      CHECK(reduced<int32_t>(Dtype::kI32, ReduceOp::kSum, {7, INT32_MIN}, scale) == 0);
      CHECK(reduced<int64_t>(Dtype::kI64, ReduceOp::kSum, {kLong, -1}, scale) == 0);
      CHECK(reduced<int64_t>(Dtype::kI64, ReduceOp::kAverage, {INT64_MIN, 1}, scale) == 0);
      CHECK(reduced<uint64_t>(Dtype::kU64, ReduceOp::kMax, {UINT64_MAX}, scale) == 0);
    }
  }
}

TEST_CASE("integer sums and products wrap around and are exact without scaling") {
  CHECK(reduced<int8_t>(Dtype::kI8, ReduceOp::kSum, {100, 100}) == -56);
  CHECK(reduced<int16_t>(Dtype::kI16, ReduceOp::kProduct, {-32768, -1}) == -32768);
  CHECK(reduced<int32_t>(Dtype::kI32, ReduceOp::kSum, {INT32_MAX, 1}) == INT32_MIN);
  CHECK(reduced<uint16_t>(Dtype::kU16, ReduceOp::kProduct, {65535, 65535}) == 1);
  CHECK(reduced<uint32_t>(Dtype::kU32, ReduceOp::kSum, {UINT32_MAX, 2}) == 1);
  const int64_t beyond_double = (int64_t{1} << 53) + 1;
  CHECK(reduced<int64_t>(Dtype::kI64, ReduceOp::kSum, {beyond_double, 2}) == beyond_double + 2);
}

TEST_CASE("any nonzero byte is true, and booleans are not scaled") {
  for (const Scale& scale : {Scale{}, Scale{0.5, 0.0}}) {
    CHECK(reduced<uint8_t>(Dtype::kBool, ReduceOp::kSum, {0, 2}, scale) == 1);
    CHECK(reduced<uint8_t>(Dtype::kBool, ReduceOp::kMax, {0, 0}, scale) == 0);
    CHECK(reduced<uint8_t>(Dtype::kBool, ReduceOp::kProduct, {1, 2}, scale) == 1);
    CHECK(reduced<uint8_t>(Dtype::kBool, ReduceOp::kMin, {255, 0}, scale) == 0);
  }
}

TEST_CASE("min and max give NaN where any source is NaN") {
  const double nan = std::nan("");
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    CHECK(std::isnan(reduced<double>(Dtype::kF64, op, {nan, 1.0, 2.0})));
    CHECK(std::isnan(reduced<double>(Dtype::kF64, op, {1.0, nan, 2.0})));
    CHECK(std::isnan(reduced<double>(Dtype::kF64, op, {1.0, 2.0, nan})));
  }
}

TEST_CASE("the order of unsigned integers is theirs, not that of signed ones") {
  CHECK(reduced<uint16_t>(Dtype::kU16, ReduceOp::kMin, {1, 65535}) == 1);
  CHECK(reduced<uint32_t>(Dtype::kU32, ReduceOp::kMax, {1, UINT32_MAX}) == UINT32_MAX);
  CHECK(reduced<uint64_t>(Dtype::kU64, ReduceOp::kMax, {UINT64_MAX, 1}) == UINT64_MAX);
}

TEST_CASE("complex numbers are multiplied as such, and have no order") {
  using C = std::complex<float>;
  CHECK(reduced<C>(Dtype::kC64, ReduceOp::kProduct, {{1, 2}, {3, -1}}) == C{5, 5});
  CHECK(reduced<C>(Dtype::kC64, ReduceOp::kAverage, {{1, 2}, {3, -1}}, {1.0, 0.5}) == C{2, 0.5});
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (const Dtype dtype : {Dtype::kC32, Dtype::kC64, Dtype::kC128}) {
      CHECK_THROWS_AS(reduce_fn(dtype, op), Error);
    }
  }
}

TEST_CASE("a factor that is NaN gives NaN in every float format") {
  // A payload of all ones, which rounding to bfloat16 would carry into the sign.
  const Scale scale = {1.0, -std::nan("0xfffffffffffff")};
  CHECK(std::isnan(
      f16_to_f32(reduced<uint16_t>(Dtype::kF16, ReduceOp::kSum, {f32_to_f16(1.0f)}, scale))));
  CHECK(std::isnan(
      bf16_to_f32(reduced<uint16_t>(Dtype::kBF16, ReduceOp::kSum, {f32_to_bf16(1.0f)}, scale))));
  CHECK(std::isnan(reduced<float>(Dtype::kF32, ReduceOp::kSum, {1.0f}, scale)));
}

TEST_CASE("the bits of floats are not combined") {
  for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
    for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16, Dtype::kF32, Dtype::kF64, Dtype::kC64}) {
      CHECK_THROWS_AS(reduce_fn(dtype, op), Error);
    }
  }
}

TEST_CASE("Adasum has no elementwise function") {
  try {
    reduce_fn(Dtype::kF32, ReduceOp::kAdasum);
    FAIL("nothing thrown");
  } catch (const Error& error) {
    CHECK(error.code == ErrorCode::kInvalid);
    CHECK(std::string(error.what()).find("Adasum") != std::string::npos);
  }
}

TEST_CASE("dtypes know their size and the name users call them") {
  CHECK(size_of(Dtype::kBool) == 1);
  CHECK(size_of(Dtype::kBF16) == 2);
  CHECK(size_of(Dtype::kI64) == 8);
  CHECK(size_of(Dtype::kU16) == 2);
  CHECK(size_of(Dtype::kC128) == 16);
  CHECK(size_of(Dtype::kF8E5M2) == 1);
  CHECK(size_of(Dtype::kF4E2M1FNX2) == 1);
  CHECK(size_of(Dtype::kU4) == 1);
  CHECK(size_of(Dtype::kBC32) == 4);
  CHECK(std::string(name(Dtype::kF32)) == "float32");
  CHECK(std::string(name(Dtype::kBF16)) == "bfloat16");
  CHECK(std::string(name(Dtype::kBool)) == "bool");
  CHECK(std::string(name(Dtype::kC128)) == "complex128");
  CHECK(std::string(name(Dtype::kF4E2M1FNX2)) == "float4_e2m1fn_x2");
  CHECK(std::string(name(Dtype::kBC32)) == "bcomplex32");
}

TEST_CASE("dtypes that are only moved are not taken for ones that can be reduced") {
  CHECK(is_reducible(Dtype::kC128));
  CHECK_FALSE(is_reducible(Dtype::kF8E4M3FN));
  CHECK(is_floating(Dtype::kF64));
  CHECK_FALSE(is_floating(Dtype::kU16));
  CHECK_FALSE(is_floating(Dtype::kF8E5M2));
}

}  // namespace
}  // namespace sirtaki
