#include "python/engine/places.h"

#include <utility>

namespace nb = nanobind;

namespace sirtaki {
namespace {

/// DLPack's functions of a framework, since version 1.3 of its dlpack.h.
struct DlExchange {
  uint32_t major;
  uint32_t minor;
  DlExchange* earlier;
  void* allocate;
  void* take;
  void* give;
  int (*look)(void* tensor, DlTensor* found);
  void* stream;
};

constexpr int32_t kCpu = 1;
constexpr uint8_t kComplex = 5;

bool in_row_order(const DlTensor& tensor) {
  int64_t step = 1;
  for (int32_t i = tensor.dimensions; i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != step) return false;
    step *= tensor.shape[i];
  }
  return true;
}

}  // namespace

Places::Places(nb::tuple classes, nb::object negated, nb::object conjugated)
    : classes_(std::move(classes)),
      negated_(std::move(negated)),
      conjugated_(std::move(conjugated)) {
  const auto capsule = nb::cast<nb::capsule>(classes_[0].attr("__dlpack_c_exchange_api__"));
  const auto* exchange = static_cast<const DlExchange*>(capsule.data("dlpack_exchange_api"));
  if (exchange->major == 1 && exchange->minor >= 3) look_ = exchange->look;
}

std::optional<DlTensor> Places::find(nb::handle tensor) const {
  DlTensor found;
  if (look_ == nullptr || !is_instance(tensor)) return std::nullopt;
  if (look_(tensor.ptr(), &found) != 0) {
    PyErr_Clear();  // it has no such memory
    return std::nullopt;
  }
  if (found.device != kCpu || found.data == nullptr || !in_row_order(found)) return std::nullopt;
  const bool differs = !negated_(tensor).is(Py_False) ||
                       (found.element.code == kComplex && !conjugated_(tensor).is(Py_False));
  if (differs) return std::nullopt;
  found.data = static_cast<char*>(found.data) + found.offset;
  return found;
}

bool Places::is_instance(nb::handle tensor) const {
  for (const nb::handle kind : classes_) {
    if (tensor.type().is(kind)) return true;
  }
  return false;
}

}  // namespace sirtaki
