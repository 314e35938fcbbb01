#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/float_state.h"
#include "collectives/kinds.h"
#include "collectives/op.h"
#include "math/codec.h"
#include "math/fixed_point.h"
#include "math/reduce_levels.h"
#include "python/bindings.h"
#include "python/gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

void reduce(uintptr_t target, const std::vector<uintptr_t>& sources, int dtype, int op,
            size_t count, double prescale, double postscale) {
  const WithoutGil release;
  std::vector<const void*> from;
  for (const uintptr_t source : sources) from.push_back(reinterpret_cast<const void*>(source));
  const FloatState floats;
  const ReduceFn fn = reduce_fn(static_cast<Dtype>(dtype), static_cast<ReduceOp>(op));
  fn(reinterpret_cast<void*>(target), nullptr, from.data(), static_cast<int>(from.size()), count,
     {prescale, postscale});
}

const Codec* find(int codec) {
  if (codec >= 0 && codec < codec_count()) return find_codec(static_cast<CodecId>(codec));
  throw nb::value_error("there is no such codec");
}

bool has_coded_reduction(int codec, int op) {
  find(codec);
  return op >= 0 && op < kReduceOpCount &&
         has_reduction(static_cast<CodecId>(codec), static_cast<ReduceOp>(op));
}

void give_back_lost(int codec, uintptr_t numbers, uintptr_t residual, size_t count) {
  const Codec* const found = find(codec);
  if (found == nullptr) throw nb::value_error("what travels as it is loses nothing");
  const WithoutGil release;
  const FloatState floats;
  feed_back(*found, reinterpret_cast<float*>(numbers), reinterpret_cast<float*>(residual), count);
}

nb::tuple add_fixed(uintptr_t sums, uintptr_t values, int dtype, size_t count, int exponent,
                    int mode) {
  Magnitudes found{};
  {
    const WithoutGil release;
    const FloatState floats;
    const ToFixedFn add = to_fixed_fn(static_cast<Dtype>(dtype), static_cast<FixedMode>(mode));
    found = add(reinterpret_cast<int64_t*>(sums), reinterpret_cast<const void*>(values), count,
                exponent);
  }
  return nb::make_tuple(found.largest, found.special);
}

void round_fixed_sums(uintptr_t values, uintptr_t sums, int dtype, size_t count, int exponent,
                      int64_t divisor) {
  const WithoutGil release;
  const FloatState floats;
  from_fixed_fn(static_cast<Dtype>(dtype))(reinterpret_cast<void*>(values),
                                           reinterpret_cast<const int64_t*>(sums), count, exponent,
                                           divisor);
}

const char* kernel_level() {
  const Kernels* const best = &best_kernels();
  if (best == find_kernels(Level::kV4)) return "AVX-512";
  return best == find_kernels(Level::kV3) ? "AVX2" : "baseline";
}

/// The values of an enumeration by their names.
template <class Enum, class Name>
nb::dict numbers(int count, Name name_of) {
  nb::dict result;
  for (int number = 0; number < count; ++number) {
    result[name_of(static_cast<Enum>(number))] = number;
  }
  return result;
}

}  // namespace

void bind_math(nb::module_& m) {
  m.def("reduce", &reduce, "target"_a, "sources"_a, "dtype"_a, "op"_a, "count"_a,
        "prescale"_a = 1.0, "postscale"_a = 1.0,
        "Reduces arrays at addresses, in their order, as the collectives do; see math/reduce.h.");
  m.def("has_coded_reduction", &has_coded_reduction, "codec"_a, "op"_a,
        "Whether numbers that travel in this format can be reduced so.");
  m.def("feed_back", &give_back_lost, "codec"_a, "numbers"_a, "residual"_a, "count"_a,
        "Error feedback on float32 at addresses; see math/codec.h.");
  m.def("add_fixed", &add_fixed, "sums"_a, "values"_a, "dtype"_a, "count"_a, "exponent"_a, "mode"_a,
        "Adds numbers at an address to integers at another; see math/fixed_point.h.");
  m.def("round_fixed", &round_fixed_sums, "values"_a, "sums"_a, "dtype"_a, "count"_a, "exponent"_a,
        "divisor"_a, "Rounds such sums; see math/fixed_point.h.");
  m.def("kernel_level", &kernel_level,
        "The instructions that reductions use here: AVX-512, AVX2, or baseline, all others.");

  const auto name_of = [](auto value) { return name(value); };
  m.attr("KINDS") = numbers<Kind>(kKindCount, [](Kind kind) { return traits_of(kind).name; });
  m.attr("DTYPES") = numbers<Dtype>(kDtypeCount, name_of);
  nb::list bytes;
  for (int d = 0; d < kDtypeCount; ++d) bytes.append(size_of(static_cast<Dtype>(d)));
  m.attr("DTYPE_BYTES") = nb::tuple(bytes);
  m.attr("REDUCIBLE_DTYPES") = kReducibleCount;
  m.attr("REDUCTIONS") = numbers<ReduceOp>(kReduceOpCount, name_of);
  nb::dict formats;
  for (int number = 0; number < codec_count(); ++number) {
    const Codec* const codec = find(number);
    formats[name(static_cast<CodecId>(number))] = codec == nullptr ? "" : codec->format;
  }
  m.attr("CODECS") = formats;
}

}  // namespace sirtaki
