#include "engine/requests/checks.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/frames.h"
#include "collectives/kinds.h"
#include "engine/requests/carried.h"
#include "transport/memory/region.h"

namespace sirtaki {
namespace {

// More than any memory holds, but few enough that no sum of bytes overflows.
constexpr int64_t kMostElements = int64_t{1} << 48;

/// The number of elements if extents of 0 were 1, so that no product overflows; -1: too many.
int64_t bounded_elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > kMostElements) return -1;
    if (extent > 0 && count > kMostElements / extent) return -1;
    count *= std::max<int64_t>(extent, 1);
  }
  return count;
}

/// Why a request cannot use its codec.
std::string not_encoded(const Request& request) {
  if (request.kind == Kind::kAllreduce && request.dtype == Dtype::kF32 && !request.launched() &&
      has_reduction(request.codec, request.reduce)) {
    return "";
  }
  const bool all = has_reduction(request.codec, ReduceOp::kMin);
  return std::string("only ") +
         (all ? "sums, averages, minima, maxima and products" : "sums and averages") +
         " of float32 in CPU memory travel as " + name(request.codec) + ", in an allreduce";
}

/// Checks the numbers of rows: by tensor and member, or for alltoall from each member to each.
std::string wrong_sizes(const Response& response, const Request& own, size_t members,
                        size_t index) {
  if (!has_sizes(own)) return response.sizes.empty() ? "" : "it has a wrong number of sizes";
  const bool exchanges = traits_of(own.kind).layout == Layout::kExchanged;
  const size_t groups = exchanges ? members : own.shapes.size();
  const std::vector<int64_t>& sizes = response.sizes;
  if (sizes.size() != groups * members) return "it has a wrong number of sizes";
  std::vector<int64_t> total(groups);
  for (size_t i = 0; i < sizes.size(); ++i) {
    // Rows that arrive together: those of a tensor from all members, or those that one member gets.
    const size_t group = exchanges ? i % members : i / members;
    const Shape& shape = own.shapes[exchanges ? 0 : group];
    if (sizes[i] < 0 || sizes[i] > most_rows(shape)) return "it has an impossible number of rows";
    total[group] += sizes[i];
    if (total[group] > most_rows(shape)) return "it has an impossible number of rows";
  }
  for (size_t i = 0; i < groups; ++i) {
    const int64_t asked = exchanges ? own.splits[i] : own.shapes[i][0];
    if (sizes[exchanges ? index * members + i : i * members + index] != asked) {
      return "it has another number of rows than this rank";
    }
  }
  return "";
}

}  // namespace

std::string malformed(const Request& request) {
  const auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
  const Kind kind = request.kind;
  if (static_cast<int>(kind) >= kKindCount) {
    return "there is no operation of kind " + number(kind);
  }
  if (static_cast<int>(request.dtype) >= kDtypeCount) {
    return "there is no dtype " + number(request.dtype);
  }
  if (static_cast<int>(request.reduce) >= kReduceOpCount)
    return "there is no reduction " + number(request.reduce);
  if (request.codec != CodecId::kNone && find_codec(request.codec) == nullptr) {
    return "there is no codec " + number(request.codec);
  }
  if (request.device > 1) return "there is no device " + number(request.device);
  const KindTraits& traits = traits_of(kind);
  const bool one = traits.layout == Layout::kExchanged || traits.layout == Layout::kPieces;
  if (one && request.shapes.size() != 1) return std::string(traits.name) + " takes one tensor";
  if (!traits.moves_data() && !request.shapes.empty()) {
    return std::string(traits.name) + " takes no tensor";
  }
  if (kind == Kind::kAddSet && request.splits.empty()) return "a process set without ranks";
  // Keys of unnamed operations and of process sets begin with these characters.
  if (request.name.starts_with('\x01') || request.name.starts_with('\x02')) {
    return "a name that begins with a control character";
  }
  int64_t total = 0;
  for (const Shape& shape : request.shapes) {
    const int64_t count = bounded_elements(shape);
    total += count;
    if (count < 0 || total > kMostElements) return "a tensor of an impossible shape";
  }
  const auto impossible = [](int64_t split) { return split < 0 || split > kMostElements; };
  if (kind != Kind::kAddSet && std::ranges::any_of(request.splits, impossible)) {
    return "splits that cannot be";
  }
  return "";
}

int64_t most_rows(const Shape& shape) {
  return kMostElements / std::max<int64_t>(row_elements(shape), 1);
}

std::string wrong_splits(const Request& request, size_t members) {
  if (request.splits.size() != members) {
    return "alltoall splits has " + std::to_string(request.splits.size()) + " entries for " +
           std::to_string(members) + " ranks";
  }
  int64_t rows = 0;
  for (const int64_t split : request.splits) {
    rows += split;
    if (rows > request.shapes[0][0]) return "alltoall splits sum to more rows than there are";
  }
  return "";
}

std::string unsupported(const Request& request, size_t members) {
  const KindTraits& traits = traits_of(request.kind);
  const std::string kind = traits.name;
  for (const Shape& shape : request.shapes) {
    if (traits.cuts_rows() && shape.empty())
      return kind + " needs rows, but got a rank-zero tensor (a scalar)";
  }
  if (traits.reduces && !is_reducible(request.dtype)) {
    return kind + ": elements of type " + name(request.dtype) + " can be moved, but not reduced";
  }
  if (traits.reduces && request.reduce == ReduceOp::kAdasum) {
    if (request.kind != Kind::kAllreduce) return kind + " does not support Adasum";
    if (!is_floating(request.dtype)) return "Adasum needs a floating-point dtype";
  }
  if (request.codec != CodecId::kNone) {
    if (std::string why = not_encoded(request); !why.empty()) return kind + ": " + why;
  }
  if (traits.reduces && !has_reduction(request.dtype, request.reduce)) {
    const char* needs = is_bitwise(request.reduce) ? " needs integers or bools, not "
                                                   : " needs numbers that have an order, not ";
    return kind + ": " + name(request.reduce) + needs + name(request.dtype);
  }
  if (traits.layout != Layout::kExchanged || request.tells_rows_with_data()) return "";
  // One message informs all members of the rows that each sends to each.
  constexpr size_t kOthers = 1 << 20;  // bytes for the rest of the message
  if (members * members * sizeof(int64_t) > kMaxFrameBytes - kOthers) {
    return kind + " on accelerators among " + std::to_string(members) +
           " ranks: they are too many, let it go through the memory of CPUs "
           "(HOROVOD_GPU_ALLTOALL=HOST)";
  }
  return wrong_splits(request, members);
}

std::string missing_memory(const Submission& asked, int rank, size_t members) {
  const Request& request = asked.request;
  const KindTraits& kind = traits_of(request.kind);
  if (request.launched() || !kind.moves_data()) return "";
  const bool pieces = kind.layout == Layout::kPieces;
  const bool at_root = request.root == rank;
  const bool reads = at_root || !kind.from_root();
  const bool writes = (kind.layout == Layout::kWhole || pieces) && (at_root || !kind.to_root());
  const auto lacks = [](const auto& pointers, size_t t) {
    return t >= pointers.size() || pointers[t] == nullptr;
  };
  for (size_t t = 0; t < request.shapes.size(); ++t) {
    if (elements(request.shapes[t]) == 0) continue;
    const auto lacking = [t](const char* what) {
      return "tensor " + std::to_string(t) + " has no memory for its " + what;
    };
    const size_t inputs = pieces ? members : t + 1;
    for (size_t i = pieces ? 0 : t; reads && i < inputs; ++i) {
      if (lacks(asked.inputs, i)) return lacking("input");
    }
    if (writes && lacks(asked.outputs, t)) return lacking("output");
  }
  return "";
}

std::string wrong_root(const Request& request, const ProcessSets& sets) {
  if (!traits_of(request.kind).rooted || sets.index(request.set, request.root) >= 0) return "";
  return "root rank " + std::to_string(request.root) + " is not one of the " +
         std::to_string(sets.ranks(request.set).size()) + " ranks of the process set";
}

std::string wrong_ranks(const Request& request, size_t world) {
  const std::vector<int64_t>& ranks = request.splits;
  const auto outside = [&](int64_t rank) {
    return rank < 0 || rank >= static_cast<int64_t>(world);
  };
  if (std::ranges::any_of(ranks, outside)) {
    return "it names a rank outside the world of " + std::to_string(world);
  }
  const bool ascend = std::ranges::adjacent_find(ranks, std::greater_equal()) == ranks.end();
  return ascend ? "" : "its ranks are not in ascending order, each once";
}

std::string wrong_change(const Request& base, const ProcessSets& sets) {
  if (base.kind == Kind::kRemoveSet) return base.root == 0 ? "it removes the world" : "";
  if (base.root <= 0 || base.root >= Region::kMaxSets) {
    return "a process set cannot have the number " + std::to_string(base.root);
  }
  return wrong_ranks(base, sets.ranks(0).size());
}

std::string contradiction(const Response& response, const Request* own, const ProcessSets& sets,
                          int rank) {
  const Request& base = response.base;
  const int index = sets.contains(base.set) ? sets.index(base.set, rank) : -1;
  if (index < 0) {
    return "it is of process set " + std::to_string(base.set) + ", which this rank is not in";
  }
  const size_t members = sets.ranks(base.set).size();
  const KindTraits& traits = traits_of(base.kind);
  if (own == nullptr) {
    if (!response.joined || !traits.joinable) return "this rank has not submitted it";
    return unsupported(base, members);
  }
  if (base.kind == Kind::kJoin && own->kind == Kind::kJoin) return "";
  // The texts name rank 0, because it decides.
  if (std::string why = mismatch(base, 0, *own, rank); !why.empty()) return why;
  if (base.set != own->set) return "this rank has submitted it in another process set";
  if (changes_sets(base.kind)) return wrong_change(base, sets);
  if (traits.rooted && sets.index(base.set, base.root) < 0) return "its root is not in its set";
  if (std::string why = unsupported(*own, members); !why.empty()) return why;
  if (response.carried > 0) {
    if (std::string why = not_carried(*own, response.carried); !why.empty()) return why;
  }
  const bool sized = traits.shapes == ShapeRule::kAllButFirst;
  return sized ? wrong_sizes(response, *own, members, static_cast<size_t>(index)) : "";
}

}  // namespace sirtaki
