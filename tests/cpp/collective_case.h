#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ranks.h"

// One collective with the input of every member and what must come out.
namespace sirtaki::testing {

struct Case {
  Op op;
  bool in_place = false;
  uint32_t seed = 0;
  std::vector<std::vector<Bytes>> in;        ///< [member][stream]
  std::vector<std::vector<Bytes>> expected;  ///< [member][stream]
};

inline constexpr Kind kDataKinds[] = {Kind::kAllreduce, Kind::kReduce,       Kind::kAllgather,
                                      Kind::kGather,    Kind::kScatter,      Kind::kBroadcast,
                                      Kind::kAlltoall,  Kind::kReducescatter};

inline Op encoding(Op op, CodecId codec) {
  op.codec = codec;
  return op;
}

inline Op op_of(Kind kind, Dtype dtype, int root = 0, ReduceOp reduce = ReduceOp::kSum,
                Scale scale = {}) {
  Op op;
  op.kind = kind;
  op.dtype = dtype;
  op.reduce = reduce;
  op.scale = scale;
  op.root = root;
  return op;
}

class CaseMaker {
 public:
  /// `change`, where given, is applied to each stream of numbers.
  CaseMaker(const Op& op, int members, size_t count, uint32_t seed,
            void (*change)(Dtype, Bytes&) = nullptr)
      : n_(static_cast<size_t>(members)), count_(count), change_(change) {
    case_.op = op;
    case_.seed = seed;
    case_.in.resize(n_);
    case_.expected.resize(n_);
  }

  Case make() {
    switch (case_.op.kind) {
      case Kind::kAllreduce:
      case Kind::kReduce:
        reduce();
        break;
      case Kind::kBroadcast:
        broadcast();
        break;
      case Kind::kAllgather:
      case Kind::kGather:
        gather();
        break;
      case Kind::kScatter:
        scatter();
        break;
      case Kind::kAlltoall:
        alltoall();
        break;
      default:
        reducescatter();
    }
    for (const auto& streams : case_.in) {
      for (const Bytes& stream : streams) {
        case_.op.longest = std::max(case_.op.longest, stream.size());
      }
    }
    return std::move(case_);
  }

 private:
  Bytes random(size_t elements) {
    Bytes bytes = numbers(case_.op.dtype, elements, case_.seed * 1000 + ++streams_);
    if (change_ != nullptr) change_(case_.op.dtype, bytes);
    return bytes;
  }
  bool has_result(size_t member) const {
    return case_.op.kind == Kind::kAllreduce || case_.op.kind == Kind::kAllgather ||
           member == static_cast<size_t>(case_.op.root);
  }
  /// Different for every pair; none or some where `count` is 1.
  size_t uneven(size_t a, size_t b) const { return count_ * ((a + 2 * b + case_.seed) % 4) / 2; }

  Bytes folded(std::vector<Bytes> sources) const {
    if (case_.op.codec != CodecId::kNone) {
      for (Bytes& source : sources) source = as_it_travels(source);
    }
    Bytes result(sources[0].size());
    const size_t elements = result.size() / size_of(case_.op.dtype);
    reference::reduce(case_.op.dtype, case_.op.reduce, sources, elements, case_.op.scale, result);
    return result;
  }

  /// Each segment begins with a block.
  Bytes as_it_travels(Bytes& source) const {
    Bytes result;
    const Segments segments = cut(source, sizeof(float), case_.seed);
    for (const Segment& segment : segments.list()) {
      const auto* const data = reinterpret_cast<const unsigned char*>(segment.data);
      const Bytes given(data, data + segment.bytes);
      const Bytes encoded = reference::encoded(case_.op.codec, given);
      const Bytes seen = reference::decoded(case_.op.codec, encoded, segment.bytes / sizeof(float));
      result.insert(result.end(), seen.begin(), seen.end());
    }
    return result;
  }

  void reduce() {
    std::vector<Bytes> sources;
    for (size_t m = 0; m < n_; ++m) {
      sources.push_back(random(count_));
      case_.in[m] = {sources[m]};
    }
    const Bytes result = folded(sources);
    for (size_t m = 0; m < n_; ++m) case_.expected[m] = {has_result(m) ? result : Bytes()};
  }

  void broadcast() {
    for (size_t m = 0; m < n_; ++m) case_.in[m] = {random(count_)};
    const Bytes result = case_.in[static_cast<size_t>(case_.op.root)][0];
    for (size_t m = 0; m < n_; ++m) case_.expected[m] = {result};
  }

  void gather() {
    std::vector<Bytes> all;
    for (size_t m = 0; m < n_; ++m) {
      all.push_back(random(uneven(m, 0)));
      case_.in[m] = {all[m]};
    }
    for (size_t m = 0; m < n_; ++m) {
      case_.expected[m] = has_result(m) ? all : std::vector<Bytes>(n_);
    }
  }

  void scatter() {
    auto& parts = case_.in[static_cast<size_t>(case_.op.root)];
    for (auto& streams : case_.in) streams.resize(n_);
    for (size_t m = 0; m < n_; ++m) {
      parts[m] = random(uneven(m, 0));
      case_.expected[m] = {parts[m]};
    }
  }

  void alltoall() {
    for (size_t from = 0; from < n_; ++from) {
      for (size_t to = 0; to < n_; ++to) {
        const Bytes part = random(uneven(from, to));
        case_.in[from].push_back(part);
        case_.expected[to].push_back(part);
      }
    }
  }

  void reducescatter() {
    for (size_t to = 0; to < n_; ++to) {
      std::vector<Bytes> sources;
      for (size_t from = 0; from < n_; ++from) {
        sources.push_back(random(uneven(to, 0)));
        case_.in[from].push_back(sources.back());
      }
      case_.expected[to] = {folded(sources)};
    }
  }

  size_t n_;
  size_t count_;
  void (*change_)(Dtype, Bytes&);
  uint32_t streams_ = 0;
  Case case_;
};

inline std::string describe(const Case& c, size_t member) {
  return "kind " + std::to_string(static_cast<int>(c.op.kind)) + " of " + name(c.op.dtype) +
         ", reduce op " + std::to_string(static_cast<int>(c.op.reduce)) + ", longest " +
         std::to_string(c.op.longest) + " bytes, " + std::to_string(c.in.size()) + " members" +
         (c.in_place ? ", in place" : "") + ", gives member " + std::to_string(member) +
         " the right bytes";
}

inline Streams segments_of(std::vector<Bytes>& buffers, size_t element, uint32_t seed) {
  Streams streams;
  for (Bytes& buffer : buffers) streams.push_back(cut(buffer, element, seed++));
  return streams;
}

/// Runs the collective as number `member` of the process set and compares every byte.
template <class AnyMember>
void run_case(AnyMember& rank, const Case& c, size_t member) {
  std::vector<Bytes> in = c.in[member];
  const size_t element = size_of(c.op.dtype);
  // What is encoded has the same borders on all members.
  const bool encoded = c.op.codec != CodecId::kNone;
  const auto seed = static_cast<uint32_t>(c.seed + (encoded ? 0 : member));
  const Streams sources = segments_of(in, element, seed);
  if (c.in_place) {
    rank.run(c.op, sources, sources);
    expect(in == c.expected[member], describe(c, member));
    return;
  }
  const std::vector<Bytes>& expected = c.expected[member];
  std::vector<Bytes> out;
  for (const Bytes& stream : expected) out.emplace_back(stream.size(), 0xee);
  // Reductions of whole streams and broadcasts take equal borders.
  const bool same =
      c.op.kind == Kind::kAllreduce || c.op.kind == Kind::kReduce || c.op.kind == Kind::kBroadcast;
  const Streams targets = segments_of(out, element, same ? seed : seed + 99);
  rank.run(c.op, sources, targets);
  expect(out == expected, describe(c, member));
  expect(in == c.in[member], "inputs stay as they are; " + describe(c, member));
}

}  // namespace sirtaki::testing
