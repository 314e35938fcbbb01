#include "collectives/rounded_sum.h"

#include "collectives/slots/slot_form.h"

namespace sirtaki {

RoundedSum::RoundedSum(const Op& op, const Segments& in) : op_(op), wire_(op.wire) {
  const SlotForm form(op);
  const size_t bytes = form.at(in.bytes());
  // Not value-initialised: all of it is written next.
  numbers_ = std::unique_ptr<std::byte[]>(new std::byte[bytes]);
  stream_.add(numbers_.get(), bytes);
  Cursor from(in);
  form.copy_to(numbers_.get(), from, {0, in.bytes()});
  op_.dtype = wire_ == WireFormat::kF16 ? Dtype::kF16 : Dtype::kBF16;
  op_.wire = WireFormat::kOwn;
  op_.longest = bytes;
}

void RoundedSum::deliver(const Segments& out) const {
  const ReduceFn widen = widening_reduce_fn(wire_, ReduceOp::kSum);
  Cursor(out).walk({0, out.bytes()}, [&](std::byte* to, size_t bytes, size_t at) {
    const size_t count = bytes / sizeof(float);
    const void* const from[] = {numbers_.get() + at / sizeof(float) * kWireBytes};
    widen(to, nullptr, from, 1, count, {});
  });
}

}  // namespace sirtaki
