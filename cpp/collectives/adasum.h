#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "base/task.h"
#include "collectives/adasum_weights.h"
#include "collectives/collectives.h"
#include "collectives/cursor.h"

namespace sirtaki {

// Adasum of every member's vectors, for each segment on its own. `AnyGroup`: on one host, or on
// several.

/// Computes the products, of which each member has those of its slice of every chunk; everybody
/// sends it that slice.
template <class AnyGroup>
Task multiply(AnyGroup& group, const Op& op, const Segments& in, Gram& gram) {
  // On one host it stays in the cache; among hosts it is worth its steps.
  constexpr size_t kChunk = std::is_same_v<AnyGroup, Group> ? 1 << 20 : 4 << 20;
  const Chunks chunks(in.bytes(), kChunk);
  const auto members = static_cast<size_t>(group.size());
  Cursor cursor(in);
  // No slice is longer than the first chunk's longest.
  const size_t room = std::min(in.bytes(), kChunk) / members + 2 * kSliceAlign;
  const std::unique_ptr<std::byte[]> vectors(new std::byte[members * room]);
  Op exchange = op;
  exchange.kind = Kind::kAlltoall;
  for (uint32_t q = 0; q < chunks.count(); ++q) {
    const Range own = slice_of(chunks.range(q), group.size(), group.rank());
    std::vector<const std::byte*> sources;
    Streams sent(members);
    Streams received(members);
    exchange.longest = 0;
    for (size_t m = 0; m < members; ++m) {
      const Range slice = slice_of(chunks.range(q), group.size(), static_cast<int>(m));
      cursor.walk(slice, [&](std::byte* data, size_t bytes, size_t) { sent[m].add(data, bytes); });
      exchange.longest = std::max(exchange.longest, sent[m].bytes());
      std::byte* at = vectors.get() + m * own.bytes();
      received[m].add(at, own.bytes());
      sources.push_back(at);
    }
    co_await carry_out(group, exchange, sent, received);
    gram.add(op.dtype, own, sources);
  }
}

/// Adds up the members' shares of the products, and with the weights that follow the vectors.
template <class AnyGroup>
Task add_weighted(AnyGroup& group, const Op& op, Gram& gram, const Segments& in,
                  const Segments& out) {
  Op sum = op;
  sum.reduce = ReduceOp::kSum;
  sum.scale = {};
  Op of_products = sum;
  of_products.dtype = Dtype::kF64;
  Streams products(1);
  products[0].add(gram.values().data(), gram.values().size() * sizeof(double));
  of_products.longest = products[0].bytes();
  co_await carry_out(group, of_products, products, products);
  const auto weights = weights_of(op, gram.values(), group.size(), group.rank());
  if (is_tiny(op, gram.values(), group.size(), in)) {
    WeighedHalves halves(sum, weights, in, out);
    while (halves.next()) {
      co_await carry_out(group, halves.op(), halves.piece(), halves.piece());
      halves.deliver();
    }
    co_return;
  }
  weigh(op, weights, in, out);
  const Streams summed{out};
  co_await carry_out(group, sum, summed, summed);
}

template <class AnyGroup>
Task adasum(AnyGroup& group, const Op& op, const Segments& in, const Segments& out) {
  Gram gram(in, group.size());
  co_await multiply(group, op, in, gram);
  co_await add_weighted(group, op, gram, in, out);
}

}  // namespace sirtaki
