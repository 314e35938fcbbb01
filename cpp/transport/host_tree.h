#pragma once

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

/// Which hosts' leaders are connected for control messages: a tree with host 0 at the top, in which
/// the hosts below one are consecutive. Up to `fan_out` other hosts it is a star.
class HostTree {
 public:
  /// A host sends so many copies of a decision, and the tree of 1000 hosts has three levels.
  static constexpr int kFanOut = 32;

  explicit HostTree(int hosts, int fan_out = kFanOut) : hosts_(hosts), fan_out_(fan_out) {}

  /// -1 for host 0.
  int parent_of(int host) const;
  /// A host and all whose words go through it.
  HostRange under(int host) const;
  /// What is under each of its children, which are the first hosts of these.
  std::vector<HostRange> children_of(int host) const;
  /// How many levels are below it.
  int height_of(int host) const;
  /// Its parent, if it has one, then its children.
  std::vector<int> neighbours_of(int host) const;

 private:
  HostRange child(HostRange under, int index) const;
  int children(HostRange under) const;
  std::vector<HostRange> way_to(int host) const;

  int hosts_;
  int fan_out_;
};

}  // namespace sirtaki
