#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "math/reduce.h"
#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

void reduce(uintptr_t target, const std::vector<uintptr_t>& sources, int dtype, int op,
            size_t count, double prescale, double postscale) {
  const nb::gil_scoped_release release;
  std::vector<const void*> from;
  for (const uintptr_t source : sources) from.push_back(reinterpret_cast<const void*>(source));
  const ReduceFn fn = reduce_fn(static_cast<Dtype>(dtype), static_cast<ReduceOp>(op));
  fn(reinterpret_cast<void*>(target), nullptr, from.data(), static_cast<int>(from.size()), count,
     {prescale, postscale});
}

}  // namespace

void bind_math(nb::module_& m) {
  m.def("reduce", &reduce, "target"_a, "sources"_a, "dtype"_a, "op"_a, "count"_a,
        "prescale"_a = 1.0, "postscale"_a = 1.0,
        "Reduces arrays at addresses, in their order, as the collectives do; see math/reduce.h.");
}

}  // namespace sirtaki
