#include "transport/host_tree.h"

#include <algorithm>

namespace sirtaki {

int HostTree::children(HostRange under) const { return std::min(fan_out_, under.size() - 1); }

/// The others are shared out as evenly as they can be.
HostRange HostTree::child(HostRange under, int index) const {
  const int64_t others = under.size() - 1;
  const int parts = children(under);
  const auto cut = [&](int64_t i) {
    return under.begin + 1 + static_cast<int32_t>(others * i / parts);
  };
  return {cut(index), cut(index + 1)};
}

/// What is under each host above this one, from host 0 on, then what is under this one.
std::vector<HostRange> HostTree::way_to(int host) const {
  std::vector<HostRange> way{{0, hosts_}};
  while (way.back().begin != host) {
    int index = 0;
    while (child(way.back(), index).end <= host) ++index;
    way.push_back(child(way.back(), index));
  }
  return way;
}

HostRange HostTree::under(int host) const { return way_to(host).back(); }

int HostTree::parent_of(int host) const { return host == 0 ? -1 : way_to(host).rbegin()[1].begin; }

std::vector<HostRange> HostTree::children_of(int host) const {
  const HostRange own = under(host);
  std::vector<HostRange> result;
  for (int index = 0; index < children(own); ++index) result.push_back(child(own, index));
  return result;
}

int HostTree::height_of(int host) const {
  int height = 0;
  for (HostRange own = under(host); own.size() > 1; ++height) {
    own = child(own, children(own) - 1);  // none of its children has more hosts
  }
  return height;
}

std::vector<int> HostTree::neighbours_of(int host) const {
  std::vector<int> result;
  if (host > 0) result.push_back(parent_of(host));
  for (const HostRange& below : children_of(host)) result.push_back(below.begin);
  return result;
}

}  // namespace sirtaki
