#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

namespace sirtaki {

/// DLPack's description of a tensor, as in its dlpack.h.
struct DlTensor {
  struct Element {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    bool operator==(const Element&) const = default;
  };

  void* data;
  int32_t device;
  int32_t device_number;
  int32_t dimensions;
  Element element;
  const int64_t* shape;
  const int64_t* strides;
  uint64_t offset;
};

/// Where a framework's tensors are, from DLPack's C interface: without Python objects on the way.
class Places {
 public:
  /// Sees instances of these classes, but of no others, not even derived ones. `negated` and
  /// `conjugated` tell tensors whose memory holds other numbers.
  Places(nanobind::tuple classes, nanobind::object negated, nanobind::object conjugated);

  /// Nothing unless the tensor's memory holds its elements, one after another in row order, and the
  /// processor can use it.
  std::optional<DlTensor> find(nanobind::handle tensor) const;

 private:
  bool is_instance(nanobind::handle tensor) const;

  nanobind::tuple classes_;
  nanobind::object negated_;
  nanobind::object conjugated_;
  int (*look_)(void* tensor, DlTensor* found) = nullptr;  ///< null: in another version's way
};

}  // namespace sirtaki
