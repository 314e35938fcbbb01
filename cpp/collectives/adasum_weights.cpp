#include "collectives/adasum_weights.h"

#include <algorithm>

namespace sirtaki {
namespace {

/// The tree, on coefficient vectors.
class Tree {
 public:
  Tree(const double* gram, size_t members) : gram_(gram), n_(members), nodes_(members) {
    for (size_t i = 0; i < n_; ++i) {
      nodes_[i].resize(n_);
      nodes_[i][i] = 1.0;
    }
  }

  /// What each member's vector is multiplied with. Members beyond a power of two are folded in
  /// first.
  std::vector<double> coefficients() {
    size_t power = 1;
    while (power * 2 <= n_) power *= 2;
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

  /// A zero vector changes nothing, whatever its weight.
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

}  // namespace

Gram::Gram(const Segments& stream, int members)
    : stream_(stream),
      members_(static_cast<size_t>(members)),
      values_(stream.list().size() * members_ * members_) {}

void Gram::add(Dtype dtype, Range part, const std::vector<const std::byte*>& sources) {
  std::vector<const void*> at_sources(members_);
  size_t at = part.begin;
  while (at < part.end) {
    const auto bytes = [&] { return stream_.list()[segment_].bytes; };
    while (at >= start_ + bytes()) start_ += stream_.list()[segment_++].bytes;
    const size_t end = std::min(part.end, start_ + bytes());
    for (size_t m = 0; m < members_; ++m) at_sources[m] = sources[m] + (at - part.begin);
    add_gram(values_.data() + segment_ * members_ * members_, dtype, at_sources.data(),
             static_cast<int>(members_), (end - at) / size_of(dtype));
    at = end;
  }
}

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

void weigh(const Op& op, const std::vector<double>& weights, const Segments& in,
           const Segments& out) {
  const ReduceFn scaled = reduce_fn(op.dtype, ReduceOp::kSum);
  for (size_t s = 0; s < in.list().size(); ++s) {
    const void* source = in.list()[s].data;
    scaled(out.list()[s].data, nullptr, &source, 1, in.list()[s].bytes / size_of(op.dtype),
           {weights[s], 1.0});
  }
}

bool is_tiny(const Op& op, const std::vector<double>& gram, int members, const Segments& in) {
  if (!is_half(op.dtype)) return false;
  // Of the least number that has all its bits.
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

WeighedHalves::WeighedHalves(const Op& sum, const std::vector<double>& weights, const Segments& in,
                             const Segments& out)
    : op_(sum),
      codec_(*find_codec(sum.dtype == Dtype::kF16 ? CodecId::kF16 : CodecId::kBF16)),
      weights_(weights),
      in_(in),
      from_(in),
      to_(out),
      chunks_(in.bytes(), codec_.bytes(kPiece)),
      numbers_(std::min(kPiece, codec_.numbers(in.bytes()))) {
  op_.dtype = Dtype::kF32;
}

bool WeighedHalves::next() {
  if (next_ == chunks_.count()) return false;
  range_ = chunks_.range(next_++);
  const ReduceFn widen = decode_fn(codec_, ReduceOp::kSum);
  from_.walk(range_, [&](const std::byte* data, size_t bytes, size_t at) {
    while (at >= end_) end_ += in_.list()[segment_++].bytes;
    const void* source = data;
    widen(numbers_.data() + codec_.numbers(at - range_.begin), nullptr, &source, 1,
          codec_.numbers(bytes), {weights_[segment_ - 1], 1.0});
  });
  op_.longest = codec_.numbers(range_.bytes()) * sizeof(float);
  piece_ = Streams(1);
  piece_[0].add(numbers_.data(), op_.longest);
  return true;
}

void WeighedHalves::deliver() {
  to_.walk(range_, [&](std::byte* to, size_t bytes, size_t at) {
    codec_.encode(to, numbers_.data() + codec_.numbers(at - range_.begin), codec_.numbers(bytes));
  });
}

}  // namespace sirtaki
