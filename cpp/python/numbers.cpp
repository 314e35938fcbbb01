#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "collectives/kinds.h"
#include "collectives/op.h"
#include "python/bindings.h"

namespace nb = nanobind;

namespace sirtaki {
namespace {

/// The numbers of things by their names.
template <class Enum, class Name>
nb::dict numbers(int count, Name name_of) {
  nb::dict result;
  for (int number = 0; number < count; ++number) {
    result[name_of(static_cast<Enum>(number))] = number;
  }
  return result;
}

}  // namespace

void bind_numbers(nb::module_& m) {
  const auto name_of = [](auto value) { return name(value); };
  m.attr("KINDS") = numbers<Kind>(kKindCount, [](Kind kind) { return traits_of(kind).name; });
  m.attr("DTYPES") = numbers<Dtype>(kDtypeCount, name_of);
  nb::list bytes;
  for (int d = 0; d < kDtypeCount; ++d) bytes.append(size_of(static_cast<Dtype>(d)));
  m.attr("DTYPE_BYTES") = nb::tuple(bytes);
  m.attr("REDUCIBLE_DTYPES") = kReducibleCount;
  m.attr("REDUCTIONS") = numbers<ReduceOp>(kReduceOpCount, name_of);
  m.attr("CODECS") = numbers<CodecId>(kCodecCount, name_of);
}

}  // namespace sirtaki
