#pragma once

#include "collectives/cursor.h"
#include "math/wire_format.h"

namespace sirtaki {

/// How the numbers of a stream lie in slots: as they are, or rounded to 16 bits.
class SlotForm {
 public:
  explicit SlotForm(const Op& op)
      : round_(op.wire == WireFormat::kOwn ? nullptr : round_fn(op.wire)),
        halvings_(op.wire == WireFormat::kOwn ? 0 : 1) {}

  bool rounds() const { return round_ != nullptr; }
  /// Where a slot has what the stream has so many bytes behind the slot's first number.
  size_t at(size_t bytes) const { return bytes >> halvings_; }

  void copy_to(std::byte* slot, Cursor& stream, Range range) const {
    if (!rounds()) return stream.copy_to(slot, range);
    stream.walk(range, [&](const std::byte* from, size_t bytes, size_t position) {
      round_(slot + at(position - range.begin), from, bytes / sizeof(float));
    });
  }

 private:
  RoundFn round_;
  int halvings_;  ///< of a float32, which makes 16 bits
};

}  // namespace sirtaki
