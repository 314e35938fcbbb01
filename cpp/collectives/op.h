#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/kinds.h"
#include "math/codec.h"
#include "math/dtype.h"
#include "math/reduce.h"

namespace sirtaki {

/// A contiguous piece of memory that takes part in an operation.
struct Segment {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Segments that are read or written one after another, as one stream.
class Segments {
 public:
  void add(void* data, size_t bytes) {
    segments_.push_back({static_cast<std::byte*>(data), bytes});
    bytes_ += bytes;
  }
  size_t bytes() const { return bytes_; }
  const std::vector<Segment>& list() const { return segments_; }

 private:
  std::vector<Segment> segments_;
  size_t bytes_ = 0;
};

/// A request to a backend. Every member passes equal values; `root` is a member of the set.
struct Op {
  Kind kind = Kind::kBarrier;
  Dtype dtype = Dtype::kU8;
  ReduceOp reduce = ReduceOp::kSum;
  CodecId codec = CodecId::kNone;  ///< not kNone only in an allreduce of float32
  Scale scale;
  int root = 0;  ///< broadcast, reduce, gather, scatter
  size_t longest =
      0;  ///< bytes of the longest stream any member sends to another (all kinds but barrier)
  int32_t set = 0;                ///< process set id
  size_t chunk_bytes = 96 << 10;  ///< piece of a stream that is in flight at a time
};

/// The part of an operation that shared heaps leave to the slots: the parts of its streams that lie
/// elsewhere. It is the whole operation at first, and stays so if members cannot access each
/// other's memory.
struct Rest {
  Op op;
  Streams in;
  Streams out;
};

}  // namespace sirtaki
