#include "collectives/kinds.h"
#include "engine/requests/checks.h"
#include "engine/sequencer/reports.h"
#include "transport/memory/region.h"

namespace sirtaki {
namespace {

/// Why ranks that have joined cannot take part with zeros; empty if they can.
std::string not_joinable(const Request& request, const Joins& joins) {
  if (!traits_of(request.kind).joinable) {
    return std::string(traits_of(request.kind).name) + " is not supported with Join at this time";
  }
  const bool reachable = !request.launched() || joins.on_accelerators(request.set);
  return reachable ? "" : "a rank that has joined has no accelerator to take part on with zeros";
}

std::string impossible_change(const Request& request, const ProcessSets& sets) {
  if (request.kind == Kind::kRemoveSet) {
    const bool known_set = request.root != 0 && sets.contains(request.root);
    return known_set ? ""
                     : "there is no process set " + std::to_string(request.root) + " to remove";
  }
  std::string why = wrong_ranks(request, sets.ranks(0).size());
  if (!why.empty()) return why;
  if (sets.find({request.splits.begin(), request.splits.end()}) >= 0) {
    return "a process set with these ranks exists already";
  }
  if (sets.next_id() >= Region::kMaxSets) {
    return "at most " + std::to_string(Region::kMaxSets) + " process sets can exist at a time";
  }
  return "";
}

/// Why an operation that all members agree on is impossible; empty if it is not.
std::string impossible(const Pending& pending, const ProcessSets& sets) {
  const Request& request = pending.base();
  if (changes_sets(request.kind)) return impossible_change(request, sets);
  const auto members = static_cast<size_t>(pending.members);
  std::string why = wrong_root(request, sets);
  if (why.empty()) why = unsupported(request, members);
  for (const Request& asked : pending.requests) {
    if (why.empty()) why = unsupported(asked, members);
  }
  return why;
}

}  // namespace

std::string cannot_run(const Pending& pending, const ProcessSets& sets, const Joins& joins) {
  const std::string why = pending.whole() ? "" : not_joinable(pending.base(), joins);
  return why.empty() ? impossible(pending, sets) : why;
}

}  // namespace sirtaki
