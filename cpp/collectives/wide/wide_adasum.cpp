#include <vector>

#include "collectives/adasum_weights.h"
#include "collectives/place.h"
#include "collectives/wide/wide.h"

namespace sirtaki {
namespace {

/// Bytes of the stream whose products are computed at a time.
constexpr size_t kChunk = 4 << 20;

/// Computes the products, of which each member has those of its slice of every chunk; everybody
/// sends it that slice.
Task multiply(WideGroup& group, const Op& op, const Segments& in, Gram& gram) {
  const Locator locator(in);
  const Chunks chunks(in.bytes(), kChunk);
  const auto members = static_cast<size_t>(group.size());
  Op exchange = op;
  exchange.kind = Kind::kAlltoall;
  for (uint32_t q = 0; q < chunks.count(); ++q) {
    const Range chunk = chunks.range(q);
    const auto slice = [&](size_t m) {
      const Range part = slice_of(chunk.bytes(), group.size(), static_cast<int>(m));
      return Range{chunk.begin + part.begin, chunk.begin + part.end};
    };
    const Range own = slice(static_cast<size_t>(group.rank()));
    std::vector<std::byte> vectors(members * own.bytes());
    std::vector<const std::byte*> sources;
    Streams sent(members);
    Streams received(members);
    exchange.longest = 0;
    for (size_t m = 0; m < members; ++m) {
      locator.walk(slice(m),
                   [&](std::byte* data, size_t bytes, size_t) { sent[m].add(data, bytes); });
      exchange.longest = std::max(exchange.longest, sent[m].bytes());
      std::byte* at = vectors.data() + m * own.bytes();
      received[m].add(at, own.bytes());
      sources.push_back(at);
    }
    co_await alltoall(group, exchange, sent, received);
    gram.add(op.dtype, own, sources);
  }
}

}  // namespace

Task adasum(WideGroup& group, const Op& op, const Segments& in, const Segments& out) {
  Gram gram(in, group.size());
  co_await multiply(group, op, in, gram);
  co_await add_weighted(group, op, gram, in, out);
}

}  // namespace sirtaki
