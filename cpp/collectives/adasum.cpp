#include <algorithm>
#include <bit>
#include <memory>
#include <type_traits>
#include <vector>

#include "collectives/collectives.h"
#include "collectives/cursor.h"

// Adasum (Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021) adds
// two vectors as
//   adasum(a, b) = (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b
// and several vectors by a binary tree. Every node of the tree is a linear combination of the
// members' vectors, so all coefficients follow from the dot products of the vectors: one pass
// computes these, and a weighted sum follows.
namespace sirtaki {
namespace {

/// The tree on coefficient vectors.
class Tree {
 public:
  Tree(const double* gram, size_t members) : gram_(gram), n_(members), nodes_(members) {
    for (size_t i = 0; i < n_; ++i) {
      nodes_[i].resize(n_);
      nodes_[i][i] = 1.0;
    }
  }

  /// The factor of each member's vector. Members beyond a power of two are folded in first.
  std::vector<double> coefficients() {
    const size_t power = std::bit_floor(n_);
    for (size_t i = power; i < n_; ++i) combine(i - power, i);
    for (size_t distance = 1; distance < power; distance *= 2) {
      for (size_t i = 0; i + distance < power; i += 2 * distance) combine(i, i + distance);
    }
    return nodes_[0];
  }

 private:
  void combine(size_t a, size_t b) {
    const double across = product(nodes_[a], nodes_[b]);
    const double weight_a = weight(across, product(nodes_[a], nodes_[a]));
    const double weight_b = weight(across, product(nodes_[b], nodes_[b]));
    for (size_t i = 0; i < n_; ++i) {
      nodes_[a][i] = weight_a * nodes_[a][i] + weight_b * nodes_[b][i];
    }
  }

  /// A zero vector contributes nothing, whatever its weight.
  static double weight(double across, double square) {
    return square > 0 ? 1.0 - across / (2.0 * square) : 1.0;
  }

  double product(const std::vector<double>& a, const std::vector<double>& b) const {
    double sum = 0;
    for (size_t i = 0; i < n_; ++i) {
      for (size_t j = 0; j < n_; ++j) {
        sum += a[i] * b[j] * gram_[std::min(i, j) * n_ + std::max(i, j)];
      }
    }
    return sum;
  }

  const double* gram_;
  size_t n_;
  std::vector<std::vector<double>> nodes_;
};

/// The dot products of all members' vectors, by segment: gram[segment][i][j] for i <= j.
class Gram {
 public:
  Gram(const Segments& stream, int members)
      : segments_(stream.list()),
        members_(static_cast<size_t>(members)),
        values_(segments_.size() * members_ * members_) {}

  /// Adds the products over the range `part` of the stream, which begins no earlier than the one
  /// before ended; `sources[m]` points to the first of member m's bytes of it.
  void add(Dtype dtype, Range part, const std::vector<const std::byte*>& sources) {
    std::vector<const void*> at_sources(members_);
    for (size_t at = part.begin; at < part.end;) {
      while (at >= start_ + segments_[segment_].bytes) start_ += segments_[segment_++].bytes;
      const size_t end = std::min(part.end, start_ + segments_[segment_].bytes);
      for (size_t m = 0; m < members_; ++m) at_sources[m] = sources[m] + (at - part.begin);
      add_gram(values_.data() + segment_ * members_ * members_, dtype, at_sources.data(),
               static_cast<int>(members_), (end - at) / size_of(dtype));
      at = end;
    }
  }

  std::vector<double>& values() { return values_; }

 private:
  const std::vector<Segment>& segments_;
  size_t members_;
  std::vector<double> values_;
  size_t segment_ = 0;
  size_t start_ = 0;  // position of segment_ in the stream
};

/// The factor with which member `rank` multiplies each segment of its vectors.
std::vector<double> weights_of(const Op& op, const std::vector<double>& gram, int members,
                               int rank) {
  const auto n = static_cast<size_t>(members);
  std::vector<double> weights;
  for (size_t at = 0; at < gram.size(); at += n * n) {
    const double own = Tree(gram.data() + at, n).coefficients()[static_cast<size_t>(rank)];
    weights.push_back(own * op.scale.pre * op.scale.post);
  }
  return weights;
}

/// Writes to `out` the contribution to the sum of a member with these weights.
void weigh(const Op& op, const std::vector<double>& weights, const Segments& in,
           const Segments& out) {
  const ReduceFn scaled = reduce_fn(op.dtype, ReduceOp::kSum);
  for (size_t s = 0; s < in.list().size(); ++s) {
    const void* source = in.list()[s].data;
    scaled(out.list()[s].data, nullptr, &source, 1, in.list()[s].bytes / size_of(op.dtype),
           {weights[s], 1.0});
  }
}

/// Whether the vectors are 16-bit floats so small that their weighting loses most of their bits.
/// All members get the same answer.
bool is_tiny(const Op& op, const std::vector<double>& gram, int members, const Segments& in) {
  if (!is_half(op.dtype)) return false;
  // The square of the smallest number with full precision.
  const double square = op.dtype == Dtype::kF16 ? 0x1p-28 : 0x1p-252;
  const auto n = static_cast<size_t>(members);
  for (size_t s = 0; s < in.list().size(); ++s) {
    const auto count = static_cast<double>(in.list()[s].bytes / size_of(op.dtype));
    for (size_t m = 0; m < n; ++m) {
      const double own = gram[(s * n + m) * n + m];
      if (own > 0 && own < count * square) return true;
    }
  }
  return false;
}

/// Computes the products: each member does so for its slice of every chunk, which all members send
/// it.
template <class AnyGroup>
Task multiply(AnyGroup& group, const Op& op, const Segments& in, Gram& gram) {
  // On one host a chunk stays in the cache; among hosts it is worth its steps.
  constexpr size_t kChunk = std::is_same_v<AnyGroup, Group> ? 1 << 20 : 4 << 20;
  const Chunks chunks(in.bytes(), kChunk);
  const auto members = static_cast<size_t>(group.size());
  Cursor cursor(in);
  // The longest slice of the first chunk is the longest of all.
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

/// Adds up tiny vectors with their weights as float32, piece by piece, so that the sum is rounded
/// only once.
template <class AnyGroup>
Task add_halves(AnyGroup& group, const Op& sum, const std::vector<double>& weights,
                const Segments& in, const Segments& out) {
  constexpr size_t kPiece = 1 << 20;  // numbers
  const Codec& codec = *find_codec(sum.dtype == Dtype::kF16 ? CodecId::kF16 : CodecId::kBF16);
  const ReduceFn widen = decode_fn(codec, ReduceOp::kSum);
  Op op = sum;
  op.dtype = Dtype::kF32;
  std::vector<float> numbers(std::min(kPiece, codec.numbers(in.bytes())));
  Cursor from(in);
  Cursor to(out);
  size_t segment = 0;  // after the one that is being walked
  size_t end = 0;      // of that one
  const Chunks pieces(in.bytes(), codec.bytes(kPiece));
  for (uint32_t q = 0; q < pieces.count(); ++q) {
    const Range range = pieces.range(q);
    from.walk(range, [&](const std::byte* data, size_t bytes, size_t at) {
      while (at >= end) end += in.list()[segment++].bytes;
      const void* source = data;
      widen(numbers.data() + codec.numbers(at - range.begin), nullptr, &source, 1,
            codec.numbers(bytes), {weights[segment - 1], 1.0});
    });
    op.longest = codec.numbers(range.bytes()) * sizeof(float);
    Streams piece(1);
    piece[0].add(numbers.data(), op.longest);
    co_await carry_out(group, op, piece, piece);
    to.walk(range, [&](std::byte* data, size_t bytes, size_t at) {
      codec.encode(data, numbers.data() + codec.numbers(at - range.begin), codec.numbers(bytes));
    });
  }
}

}  // namespace

/// Adds up the members' shares of the products, then the vectors with the resulting weights.
template <class AnyGroup>
Task adasum(AnyGroup& group, const Op& op, const Segments& in, const Segments& out) {
  Gram gram(in, group.size());
  co_await multiply(group, op, in, gram);
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
    co_await add_halves(group, sum, weights, in, out);
    co_return;
  }
  weigh(op, weights, in, out);
  const Streams summed{out};
  co_await carry_out(group, sum, summed, summed);
}

template Task adasum(Group&, const Op&, const Segments&, const Segments&);
template Task adasum(InterHostGroup&, const Op&, const Segments&, const Segments&);

}  // namespace sirtaki
