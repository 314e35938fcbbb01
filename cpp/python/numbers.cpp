#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "collectives/op.h"
#include "engine/requests/kinds.h"
#include "python/bindings.h"

namespace nb = nanobind;

namespace sirtaki {
namespace {

nb::dict kinds() {
  nb::dict numbers;
  for (int kind = 0; kind < kKindCount; ++kind) {
    numbers[traits_of(static_cast<Kind>(kind)).name] = kind;
  }
  return numbers;
}

nb::dict dtypes() {
  nb::dict numbers;
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    numbers[name(static_cast<Dtype>(dtype))] = dtype;
  }
  return numbers;
}

nb::tuple bytes_of_dtypes() {
  nb::list bytes;
  for (int dtype = 0; dtype < kDtypeCount; ++dtype)
    bytes.append(size_of(static_cast<Dtype>(dtype)));
  return nb::tuple(bytes);
}

nb::dict reductions() {
  nb::dict numbers;
  for (int op = 0; op < kReduceOpCount; ++op) numbers[name(static_cast<ReduceOp>(op))] = op;
  return numbers;
}

nb::dict wires() {
  nb::dict numbers;
  for (int wire = 0; wire < kWireCount; ++wire) numbers[name(static_cast<WireFormat>(wire))] = wire;
  return numbers;
}

}  // namespace

void bind_numbers(nb::module_& m) {
  m.attr("KINDS") = kinds();
  m.attr("DTYPES") = dtypes();
  m.attr("DTYPE_BYTES") = bytes_of_dtypes();
  m.attr("REDUCIBLE_DTYPES") = kReducibleCount;
  m.attr("REDUCTIONS") = reductions();
  m.attr("WIRES") = wires();
}

}  // namespace sirtaki
