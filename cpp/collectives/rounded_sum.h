#pragma once

#include <memory>

#include "collectives/op.h"

namespace sirtaki {

/// A reduction of float32 with a wire, for what can only reduce numbers as they are: one of 16-bit
/// floats, in memory of its own. So what that makes of them is rounded as well.
class RoundedSum {
 public:
  RoundedSum(const Op& op, const Segments& in);

  const Op& op() const { return op_; }
  /// To be reduced in place.
  const Segments& stream() const { return stream_; }
  /// Writes the result where it belongs.
  void deliver(const Segments& out) const;

 private:
  Op op_;
  WireFormat wire_;
  std::unique_ptr<std::byte[]> numbers_;
  Segments stream_;
};

}  // namespace sirtaki
