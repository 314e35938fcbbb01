#include "collectives/adasum_weights.h"

#include <algorithm>

#include "math/dot.h"

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

void weigh(const Op& op, const std::vector<double>& gram, int members, int rank, const Segments& in,
           const Segments& out) {
  const auto n = static_cast<size_t>(members);
  const ReduceFn scaled = reduce_fn(op.dtype, ReduceOp::kSum);
  for (size_t s = 0; s < in.list().size(); ++s) {
    Tree tree(gram.data() + s * n * n, n);
    const double own = tree.coefficients()[static_cast<size_t>(rank)];
    const void* source = in.list()[s].data;
    scaled(out.list()[s].data, nullptr, &source, 1, in.list()[s].bytes / size_of(op.dtype),
           {own * op.scale.pre * op.scale.post, 1.0});
  }
}

}  // namespace sirtaki
