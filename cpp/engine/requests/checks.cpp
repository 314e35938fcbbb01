#include "engine/requests/checks.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/kinds.h"
#include "transport/memory/region.h"

namespace sirtaki {
namespace {

// Far more than any memory holds, and few enough that no sum of bytes overflows.
constexpr int64_t kMostElements = int64_t{1} << 48;

/// Elements if no extent were 0, so that no part of the product overflows; -1: too many.
int64_t bounded_elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > kMostElements) return -1;
    if (extent > 0 && count > kMostElements / extent) return -1;
    count *= std::max<int64_t>(extent, 1);
  }
  return count;
}

bool is_data_kind(Kind kind) { return kind != Kind::kJoin && !changes_sets(kind); }

/// Why a codec does not fit.
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

/// The numbers of rows: of each tensor and member, or for alltoall from each member to each.
std::string wrong_sizes(const Response& response, const Request& own, size_t members,
                        size_t index) {
  if (!has_sizes(own)) return response.sizes.empty() ? "" : "it has a wrong number of sizes";
  const bool exchanges = own.kind == Kind::kAlltoall;
  const size_t groups = exchanges ? members : own.shapes.size();
  const std::vector<int64_t>& sizes = response.sizes;
  if (sizes.size() != groups * members) return "it has a wrong number of sizes";
  std::vector<int64_t> total(groups);
  for (size_t i = 0; i < sizes.size(); ++i) {
    // Rows that arrive together: a tensor's of all members, or those that one member is sent.
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
  if (static_cast<int>(request.codec) >= kCodecCount) {
    return "there is no codec " + number(request.codec);
  }
  if (request.device > 1) return "there is no device " + number(request.device);
  if ((kind == Kind::kAlltoall || kind == Kind::kScatter) && request.shapes.size() != 1) {
    return std::string(traits_of(kind).name) + " takes one tensor";
  }
  if (!is_data_kind(kind) && !request.shapes.empty()) {
    return std::string(traits_of(kind).name) + " takes no tensor";
  }
  if (kind == Kind::kAddSet && request.splits.empty()) return "a process set without ranks";
  // Keys of unnamed operations and of process sets begin with these.
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
  if (kind != Kind::kAddSet &&
      std::any_of(request.splits.begin(), request.splits.end(), impossible)) {
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
  const bool tells_splits = request.kind == Kind::kAlltoall && !request.tells_rows_with_data();
  return tells_splits ? wrong_splits(request, members) : "";
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
  // The texts name rank 0, which decides.
  if (std::string why = mismatch(base, 0, *own, rank); !why.empty()) return why;
  if (base.set != own->set) return "this rank has submitted it in another process set";
  if (changes_sets(base.kind)) return wrong_change(base, sets);
  if (traits.rooted && sets.index(base.set, base.root) < 0) return "its root is not in its set";
  if (std::string why = unsupported(*own, members); !why.empty()) return why;
  const bool sized = traits.shapes == ShapeRule::kAllButFirst;
  return sized ? wrong_sizes(response, *own, members, static_cast<size_t>(index)) : "";
}

}  // namespace sirtaki
