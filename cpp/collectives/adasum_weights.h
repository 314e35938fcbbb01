#pragma once

#include <cstddef>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/op.h"
#include "collectives/plan.h"

namespace sirtaki {

// Adasum (Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021) adds
// two vectors as
//   adasum(a, b) = (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b
// and more by a binary tree. Every node of the tree is a linear combination of the members'
// vectors, so all coefficients follow from the vectors' products with each other: one pass for the
// products, one weighted sum.

/// The products of all members' vectors, segment by segment: gram[segment][i][j] for i <= j.
class Gram {
 public:
  Gram(const Segments& stream, int members);

  /// Adds the products over the range `part` of the stream, which is where or behind the one before
  /// ended; `sources[m]` is where member m's bytes of it begin.
  void add(Dtype dtype, Range part, const std::vector<const std::byte*>& sources);

  std::vector<double>& values() { return values_; }

 private:
  const Segments& stream_;
  size_t members_;
  std::vector<double> values_;
  size_t segment_ = 0;
  size_t start_ = 0;  // position of segment_ in the stream
};

/// What member `rank` multiplies each segment of its vectors with.
std::vector<double> weights_of(const Op& op, const std::vector<double>& gram, int members,
                               int rank);

/// Writes to `out` what a member with these weights contributes to the sum.
void weigh(const Op& op, const std::vector<double>& weights, const Segments& in,
           const Segments& out);

/// Whether vectors are of 16-bit floats so small that weighing them loses most of their bits. All
/// members find the same.
bool is_tiny(const Op& op, const std::vector<double>& gram, int members, const Segments& in);

/// What a member contributes to a sum of such: as float32, piece by piece, so that the sum is
/// rounded once.
class WeighedHalves {
 public:
  WeighedHalves(const Op& sum, const std::vector<double>& weights, const Segments& in,
                const Segments& out);

  /// Weighs the next piece; false if there is none.
  bool next();
  /// How the piece is summed, in place.
  const Op& op() const { return op_; }
  const Streams& piece() const { return piece_; }
  /// Writes the piece, which is the sum now, where it belongs.
  void deliver();

 private:
  static constexpr size_t kPiece = 1 << 20;  // numbers

  Op op_;
  const Codec& codec_;
  const std::vector<double>& weights_;
  const Segments& in_;
  Cursor from_;
  Cursor to_;
  Chunks chunks_;
  std::vector<float> numbers_;
  Streams piece_;
  Range range_;
  uint32_t next_ = 0;
  size_t segment_ = 0;  // behind the one that is walked
  size_t end_ = 0;      // position of its end in the stream
};

}  // namespace sirtaki
