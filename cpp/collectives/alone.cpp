#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/range_reduce.h"

namespace sirtaki {
namespace {

/// Reduces piece by piece, through memory that stays in the innermost cache.
void reduce_encoded(const Op& op, const Segments& in, const Segments& out) {
  constexpr size_t kPiece = 64 * kCodecLine;
  std::byte encoded[kPiece];
  const Form form(op);
  RangeReduce reduce(op, op.scale, 1, true);
  Cursor source(in, form);
  Cursor target(out, form);
  const Chunks pieces(form.bytes(in), kPiece);
  for (uint32_t q = 0; q < pieces.count(); ++q) {
    const Range range = pieces.range(q);
    source.copy_to(encoded, range);
    reduce.run(range, target, [&](int, size_t at) { return encoded + (at - range.begin); });
  }
}

void reduce_one(const Op& op, const Segments& in, const Segments& out) {
  if (op.codec != CodecId::kNone) return reduce_encoded(op, in, out);
  const bool changes = op.scale != Scale{} || op.dtype == Dtype::kBool;
  if (!changes) return copy_stream(in, out);
  Op sum = op;
  // Adasum of one vector is that vector.
  if (op.reduce == ReduceOp::kAdasum) sum.reduce = ReduceOp::kSum;
  Cursor source(in);
  Cursor target(out);
  const auto others = [](int, size_t) -> const std::byte* { return nullptr; };
  RangeReduce(sum, op.scale, 1).run({0, out.bytes()}, source, 0, target, others);
}

}  // namespace

void run_alone(const Op& op, const Streams& in, const Streams& out) {
  if (traits_of(op.kind).reduces) return reduce_one(op, in[0], out[0]);
  if (op.kind != Kind::kBarrier) copy_stream(in[0], out[0]);
}

}  // namespace sirtaki
