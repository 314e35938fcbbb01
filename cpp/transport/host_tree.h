#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sirtaki {

/// Consecutive hosts.
struct HostRange {
  int32_t begin = 0;
  int32_t end = 0;

  int size() const { return end - begin; }
  bool operator==(const HostRange&) const = default;
};

/// The tree of hosts whose leaders are connected for control messages. Host 0 is its root, and the
/// hosts below each host are consecutive. With at most `fan_out` other hosts it is a star.
class HostTree {
 public:
  /// The number of copies of a decision that a host sends; a tree of 1000 hosts has three levels.
  static constexpr int kFanOut = 32;

  explicit HostTree(int hosts, int fan_out = kFanOut) : hosts_(hosts), fan_out_(fan_out) {}

  /// -1 for host 0.
  int parent_of(int host) const { return host == 0 ? -1 : way_to(host).rbegin()[1].begin; }
  /// A host and all hosts whose messages go through it.
  HostRange under(int host) const { return way_to(host).back(); }
  /// The range under each of its children; a child is the first host of its range.
  std::vector<HostRange> children_of(int host) const {
    const HostRange own = under(host);
    std::vector<HostRange> result;
    for (int index = 0; index < children(own); ++index) result.push_back(child(own, index));
    return result;
  }
  /// The number of levels below it.
  int height_of(int host) const {
    int height = 0;
    for (HostRange own = under(host); own.size() > 1; ++height) {
      own = child(own, children(own) - 1);  // none of its children has more hosts
    }
    return height;
  }
  /// Its parent, if any, then its children.
  std::vector<int> neighbours_of(int host) const {
    std::vector<int> result;
    if (host > 0) result.push_back(parent_of(host));
    for (const HostRange& below : children_of(host)) result.push_back(below.begin);
    return result;
  }

 private:
  int children(HostRange under) const { return std::min(fan_out_, under.size() - 1); }
  /// Divides the other hosts as evenly as possible.
  HostRange child(HostRange under, int index) const {
    const int64_t others = under.size() - 1;
    const int parts = children(under);
    const auto cut = [&](int64_t i) {
      return under.begin + 1 + static_cast<int32_t>(others * i / parts);
    };
    return {cut(index), cut(index + 1)};
  }
  /// The range under each host above this one, from host 0 on, then the range under this one.
  std::vector<HostRange> way_to(int host) const {
    std::vector<HostRange> way{{0, hosts_}};
    while (way.back().begin != host) {
      int index = 0;
      while (child(way.back(), index).end <= host) ++index;
      way.push_back(child(way.back(), index));
    }
    return way;
  }

  int hosts_;
  int fan_out_;
};

}  // namespace sirtaki
