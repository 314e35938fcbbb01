#include "collectives/wide/exchange_plan.h"

#include <algorithm>

namespace sirtaki {

std::vector<HalvingStep> halving_steps(int hosts) {
  std::vector<HalvingStep> steps;
  for (int had = hosts; had > 1; had = steps.back().kept) steps.push_back({had, (had + 1) / 2});
  return steps;
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

}  // namespace sirtaki
