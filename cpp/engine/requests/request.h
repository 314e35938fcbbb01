#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "collectives/op.h"

namespace sirtaki {

using Shape = std::vector<int64_t>;

/// What one rank asks for: the part of an operation that its peers must know.
struct Request {
  Kind kind = Kind::kBarrier;
  Dtype dtype = Dtype::kU8;
  ReduceOp reduce = ReduceOp::kSum;
  CodecId codec = CodecId::kNone;
  uint8_t device = 0;  ///< 0: CPU; 1: an accelerator, where the caller moves the data. All ranks
                       ///< must agree; join: 1 if this rank can take part there with zeros
  Scale scale;
  int32_t root = 0;  ///< world rank; remove_process_set: the set
  int32_t set = 0;
  std::string name;             ///< empty: matched by order of submission within the set
  std::vector<Shape> shapes;    ///< one a tensor: a group of tensors is one request
  std::vector<int64_t> splits;  ///< alltoall: rows for each member; add_process_set: the ranks

  /// The engine agrees on it only, and the caller moves the data.
  bool launched() const { return device != 0 && kind != Kind::kJoin; }
  /// Its rows are known to who sends and who receives them, and only to them: they are told with
  /// the data (see RowExchange).
  bool tells_rows_with_data() const { return kind == Kind::kAlltoall && !launched(); }

  /// What its peers must know.
  void encode(Writer& out) const;
  /// Throws Error for what no rank asks for.
  static Request decode(Reader& in);

 private:
  template <class Self, class Bytes>
  static void fields(Self& r, Bytes& bytes) {
    bytes(r.kind)(r.dtype)(r.reduce)(r.codec)(r.device)(r.scale.pre)(r.scale.post);
    bytes(r.root)(r.set)(r.name)(r.shapes)(r.splits);
  }
};

/// Members may give different sizes, which all of them must know.
bool has_sizes(const Request& request);

/// `[2, 3]`, or `[*, 3]` where its rows are nobody's business.
std::string shape_text(const Shape& shape, bool tells_rows = true);
/// Elements of a tensor.
int64_t elements(const Shape& shape);
/// Bytes of all its tensors.
int64_t bytes_of(const Request& request);
/// Elements of one row (all dimensions but the first).
int64_t row_elements(const Shape& shape);
/// Rows `member` of `members` gets when `rows` are scattered: the first ones get one more.
int64_t rows_of(int64_t rows, int members, int member);

/// Why two ranks' requests cannot be one operation; empty if they can.
/// The text names both sides' values, e.g. `rank 0 has float32, rank 1 has float64`.
std::string mismatch(const Request& a, int rank_a, const Request& b, int rank_b);

/// Whether ready operations can be run as one.
bool can_fuse(const Request& a, const Request& b);

/// The key under which requests of different ranks find each other.
std::string match_key(const Request& request, uint64_t ordinal);
/// What people see: `allreduce 'grad'` or, unnamed, `allreduce 'noname.7'`. A name that begins with
/// the kind (`allreduce.grad`) is shown without it.
std::string describe(const Request& request, uint64_t ordinal);

/// An operation all its members agreed on, in full.
struct Response {
  Request base;                ///< as the lowest rank asked for it
  std::vector<int64_t> sizes;  ///< allgather, gather: rows [tensor × members]; alltoall that the
                               ///< caller launches: rows [member × destination]
  bool joined = false;         ///< some members take part with zeros

  template <class Self, class Bytes>
  static void fields(Self& r, Bytes& bytes) {
    bytes(r.base)(r.sizes)(r.joined);
  }
};

}  // namespace sirtaki
