#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "collectives/op.h"

namespace sirtaki {

using Shape = std::vector<int64_t>;

/// One rank's request: the part of an operation that its peers must know.
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
  std::vector<Shape> shapes;    ///< one for each tensor: a group of tensors is one request
  std::vector<int64_t> splits;  ///< alltoall: rows for each member; add_process_set: the ranks

  /// Whether the engine only agrees on it, and the caller moves the data.
  bool launched() const { return device != 0 && kind != Kind::kJoin; }
  /// Whether only the sender and the receiver of its rows know their numbers, which are sent with
  /// the data (see RowExchange).
  bool tells_rows_with_data() const {
    return traits_of(kind).layout == Layout::kExchanged && !launched();
  }

  /// Encodes what its peers must know.
  void encode(Writer& out) const;
  /// Throws Error for a request that no rank makes.
  static Request decode(Reader& in);

 private:
  template <class Self, class Bytes>
  static void fields(Self& r, Bytes& bytes) {
    bytes(r.kind)(r.dtype)(r.reduce)(r.codec)(r.device)(r.scale.pre)(r.scale.post);
    bytes(r.root)(r.set)(r.name)(r.shapes)(r.splits);
  }
};

/// Whether members may pass different sizes, which all of them must know.
bool has_sizes(const Request& request);

/// `[2, 3]`, or `[*, 3]` if its rows must not be compared.
std::string shape_text(const Shape& shape, bool tells_rows = true);
/// The elements of a tensor.
int64_t elements(const Shape& shape);
/// The bytes of all its tensors.
int64_t bytes_of(const Request& request);
/// The elements of one row (all dimensions but the first).
int64_t row_elements(const Shape& shape);
/// The rows that `member` of `members` gets of scattered `rows`: the first ones get one more.
int64_t rows_of(int64_t rows, int members, int member);

/// Why two ranks' requests cannot be one operation; empty if they can.
/// The text names both sides' values, e.g. `rank 0 has float32, rank 1 has float64`.
std::string mismatch(const Request& a, int rank_a, const Request& b, int rank_b);

/// Whether ready operations can run as one.
bool can_fuse(const Request& a, const Request& b);

/// The key by which requests of different ranks are matched.
std::string match_key(const Request& request, uint64_t ordinal);
/// The text for users: `allreduce 'grad'` or, unnamed, `allreduce 'noname.7'`. The kind at the
/// start of a name (`allreduce.grad`) is omitted.
std::string describe(const Request& request, uint64_t ordinal);

/// An operation that all its members agreed on, in full.
struct Response {
  Request base;                ///< the request of the lowest rank
  std::vector<int64_t> sizes;  ///< allgather, gather: rows [tensor × members]; alltoall that the
                               ///< caller launches: rows [member × destination]
  bool joined = false;         ///< some members take part with zeros
  uint32_t carried = 0;        ///< the bytes of a member's numbers that may travel with its report;
                               ///< 0: they may not

  template <class Self, class Bytes>
  static void fields(Self& r, Bytes& bytes) {
    bytes(r.base)(r.sizes)(r.joined)(r.carried);
  }
};

}  // namespace sirtaki
