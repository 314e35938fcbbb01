#include "backends/single.h"

#include "collectives/cursor.h"

namespace sirtaki {
namespace {

void reduce_one(const Op& op, const Segments& in, const Segments& out) {
  // Adasum of one vector is that vector.
  const ReduceOp reduce = op.reduce == ReduceOp::kAdasum ? ReduceOp::kSum : op.reduce;
  const bool rounds = op.wire != WireFormat::kOwn;
  const bool changes =
      rounds || op.scale.pre != 1.0 || op.scale.post != 1.0 || op.dtype == Dtype::kBool;
  if (!changes) return copy_stream(in, out);
  const ReduceFn fn = rounds ? rounding_reduce_fn(op.wire, reduce) : reduce_fn(op.dtype, reduce);
  Cursor source(in);
  Cursor(out).walk({0, out.bytes()}, [&](std::byte* to, size_t bytes, size_t at) {
    source.walk({at, at + bytes}, [&](const std::byte* from, size_t piece, size_t position) {
      const void* const one[] = {from};
      fn(to + (position - at), nullptr, one, 1, piece / size_of(op.dtype), op.scale);
    });
  });
}

}  // namespace

void run_alone(const Op& op, const Streams& in, const Streams& out) {
  switch (op.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce:
    case Kind::kReducescatter:
      return reduce_one(op, in[0], out[0]);
    case Kind::kBarrier:
      return;
    default:
      return copy_stream(in[0], out[0]);
  }
}

}  // namespace sirtaki
