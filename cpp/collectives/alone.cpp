#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/range_reduce.h"

namespace sirtaki {
namespace {

/// Piece by piece, through memory that stays in the innermost cache.
void reduce_encoded(const Op& op, const Segments& in, const Segments& out) {
  constexpr size_t kPiece = 64 * kCodecLine;
  std::byte encoded[kPiece];
  const Form form(op);
  RangeReduce reduce(op, op.scale, 1, true);
  CodedCursor source(form, in);
  CodedCursor target(form, out);
  const Chunks pieces(form.bytes(in), kPiece);
  for (uint32_t q = 0; q < pieces.count(); ++q) {
    const Range range = pieces.range(q);
    source.copy_to(encoded, range);
    const Place own(encoded, range.begin);
    reduce.run(range, own, 0, target, [&](int, size_t at) { return encoded + (at - range.begin); });
  }
}

void reduce_one(const Op& op, const Segments& in, const Segments& out) {
  // Adasum of one vector is that vector.
  const ReduceOp reduce = op.reduce == ReduceOp::kAdasum ? ReduceOp::kSum : op.reduce;
  if (op.codec != CodecId::kNone) return reduce_encoded(op, in, out);
  const bool changes = op.scale.pre != 1.0 || op.scale.post != 1.0 || op.dtype == Dtype::kBool;
  if (!changes) return copy_stream(in, out);
  const ReduceFn fn = reduce_fn(op.dtype, reduce);
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
