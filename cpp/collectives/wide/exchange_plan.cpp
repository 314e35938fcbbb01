#include "collectives/wide/exchange_plan.h"

#include <algorithm>

#include "transport/memory/region.h"

namespace sirtaki {
namespace {

int in_circle(int host, int hosts) { return (host % hosts + hosts) % hosts; }

bool is_direct(const ExchangeRules& rules, int hosts) { return hosts <= rules.direct_hosts; }

}  // namespace

bool rounds(Dtype dtype, ReduceOp op) {
  return is_half(dtype) && op != ReduceOp::kMin && op != ReduceOp::kMax;
}

bool goes_at_once(const ExchangeRules& rules, int hosts, size_t bytes) {
  return bytes <= Region::kSmallBytes &&
         bytes * static_cast<size_t>(hosts - 1) <= rules.gathered_bytes;
}

Exchange exchange_for(const ExchangeRules& rules, const HostShape& shape, size_t bytes,
                      bool rounds) {
  if (goes_at_once(rules, shape.hosts, bytes)) return Exchange::kGathered;
  const auto segments = static_cast<size_t>(shape.hosts) * static_cast<size_t>(shape.lanes);
  return exchange_for_streams(rules, shape, bytes / segments, rounds);
}

Exchange exchange_for_streams(const ExchangeRules& rules, const HostShape& shape, size_t bytes,
                              bool rounds) {
  if (is_direct(rules, shape.hosts)) return Exchange::kDirect;
  return rounds || bytes < rules.ring_bytes ? Exchange::kHalving : Exchange::kRing;
}

Spread spread_for(const ExchangeRules& rules, int hosts, uint32_t chunks) {
  if (is_direct(rules, hosts)) return chunks == 0 ? Spread::kFan : Spread::kChain;
  const auto depth = static_cast<uint32_t>(halving_steps(hosts).size());
  // The root sends every chunk once in a chain, and to all its children in a tree.
  const uint32_t chain = static_cast<uint32_t>(hosts) + chunks;
  return chunks * depth < chain ? Spread::kTree : Spread::kChain;
}

std::vector<HalvingStep> halving_steps(int hosts) {
  std::vector<HalvingStep> steps;
  for (int had = hosts; had > 1; had = steps.back().kept) steps.push_back({had, (had + 1) / 2});
  return steps;
}

std::vector<RingStep> ring_steps(int hosts, int host, bool scattered) {
  std::vector<RingStep> steps;
  const int last = scattered ? hosts - 1 : 2 * hosts - 2;
  for (int turn = 0; turn <= last; ++turn) {
    const int segment = in_circle(host - 1 - turn, hosts);
    steps.push_back({segment, turn > 0, turn < hosts, turn < last, turn >= hosts - 1});
  }
  return steps;
}

std::vector<RingStep> chain_steps(int hosts, int host, int root_host) {
  const int position = in_circle(host - root_host - 1, hosts);
  const bool is_last = position == hosts - 1;
  return {{0, position > 0, true, !is_last, is_last}};
}

int tree_parent(int position) { return position == 0 ? -1 : position & (position - 1); }

std::vector<int> tree_children(int hosts, int position) {
  std::vector<int> children;
  // The bits below the lowest one that is set.
  const int end = position == 0 ? hosts : position & -position;
  for (int bit = 1; bit < end && position + bit < hosts; bit *= 2) {
    children.push_back(position + bit);
  }
  std::reverse(children.begin(), children.end());
  return children;
}

std::vector<int> neighbour_hosts(const ExchangeRules& rules, int hosts, int host) {
  std::vector<int> result;
  const auto add = [&](int distance) {
    for (const int other : {host + distance, host - distance}) {
      result.push_back(in_circle(other, hosts));
    }
  };
  if (is_direct(rules, hosts)) {
    for (int distance = 1; distance < hosts; ++distance) add(distance);
  } else {
    for (const HalvingStep& step : halving_steps(hosts)) add(step.kept);
    for (int distance = 1; distance < hosts; distance *= 2) add(distance);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

}  // namespace sirtaki
