#include "engine/requests/carried.h"

#include <numeric>

#include "base/float_state.h"
#include "collectives/algorithm.h"
#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/kinds.h"

namespace sirtaki {
namespace {

constexpr size_t kMostMembers = 64;  // each sends rank 0 a report of its own

/// Streams hold writable memory, but nobody writes to inputs through them.
Segments inputs_of(const Submission& asked) {
  const Request& request = asked.request;
  Segments in;
  for (size_t t = 0; t < request.shapes.size(); ++t) {
    const auto bytes = static_cast<size_t>(elements(request.shapes[t])) * size_of(request.dtype);
    in.add(t < asked.inputs.size() ? const_cast<void*>(asked.inputs[t]) : nullptr, bytes);
  }
  return in;
}

/// In the form in which the numbers travel; 0: they cannot with reports, whatever their number.
size_t bytes_on_way(const Request& request) {
  const bool averages = request.reduce == ReduceOp::kAverage && is_integer(request.dtype);
  const bool sums = request.kind == Kind::kAllreduce && request.reduce != ReduceOp::kAdasum;
  if (!sums || averages || request.launched()) return 0;
  return Form(op_of(request, 1)).bytes(inputs_of({request, {}, {}}));
}

}  // namespace

Op op_of(const Request& request, size_t members) {
  Op op;
  op.kind = request.kind;
  op.dtype = request.dtype;
  op.reduce = request.reduce;
  op.codec = request.codec;
  op.scale = request.scale;
  op.set = request.set;
  // Integers are divided during their reduction.
  const bool scales = request.reduce == ReduceOp::kAverage && !is_integer(request.dtype);
  if (scales) op.scale.post *= 1.0 / static_cast<double>(members);
  return op;
}

size_t carried_bytes(const Request& request, size_t members, size_t hosts,
                     const ExchangeRules& rules) {
  const size_t bytes = bytes_on_way(request);
  const bool are_few = members <= kMostMembers && bytes * members <= rules.gathered_bytes;
  if (bytes == 0 || hosts < 2 || !are_few) return 0;
  const Algorithm other_way = algorithm_for({.kind = request.kind,
                                             .bytes = bytes,
                                             .members = static_cast<int>(members),
                                             .hosts = static_cast<int>(hosts),
                                             .rules = rules});
  return other_way == Algorithm::kAtOnce ? bytes : 0;
}

std::string not_carried(const Request& request, size_t bytes) {
  if (bytes == bytes_on_way(request)) return "";
  return "no " + std::to_string(bytes) + " bytes travel with its reports";
}

void append_numbers(std::string& report, const Submission& asked, size_t bytes) {
  const FloatState floats;
  const size_t before = report.size();
  report.resize(before + bytes);
  const Segments in = inputs_of(asked);
  Cursor(in, Form(op_of(asked.request, 1)))
      .copy_to(reinterpret_cast<std::byte*>(report.data()) + before, {0, bytes});
}

std::string carried_sum(const Op& op, std::span<const int> on_hosts, const std::string& numbers) {
  const FloatState floats;
  const int members = std::accumulate(on_hosts.begin(), on_hosts.end(), 0);
  const size_t bytes = numbers.size() / static_cast<size_t>(members);
  std::string result(bytes, '\0');
  add_gathered(op, on_hosts, reinterpret_cast<const std::byte*>(numbers.data()), bytes,
               reinterpret_cast<std::byte*>(result.data()));
  return result;
}

void deliver_carried(const Op& op, const std::string& result, const Segments& out) {
  Cursor(out, Form(op))
      .copy_from(reinterpret_cast<const std::byte*>(result.data()), {0, result.size()});
}

}  // namespace sirtaki
