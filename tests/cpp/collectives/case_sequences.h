#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "collective_case.h"

// Many collectives one after the other, the same on all members, of one host or of several.
namespace sirtaki::testing {

/// What cases are drawn from.
struct Choices {
  std::vector<Dtype> dtypes;
  std::vector<size_t> counts;

  Case any(std::minstd_rand& random, int members) const {
    Op op;
    op.kind = kDataKinds[random() % std::size(kDataKinds)];
    op.dtype = dtypes[random() % dtypes.size()];
    op.root = static_cast<int>(random() % static_cast<uint32_t>(members));
    const size_t count = counts[random() % counts.size()];
    return CaseMaker(op, members, count, random() % 1000).make();
  }
};

/// -1: the rank is none of these.
inline int index_of(const std::vector<int>& ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

/// Process sets of the ranks of a world, and cases for each.
class SetsPlan {
 public:
  SetsPlan(int n, const std::vector<std::vector<int>>& more, const Choices& choices) {
    for (int r = 0; r < n; ++r) sets_[0].push_back(r);
    for (size_t i = 0; i < more.size(); ++i) sets_[static_cast<int32_t>(i) + 1] = more[i];
    std::minstd_rand random(7);
    for (const auto& [set, ranks] : sets_) {
      for (int i = 0; i < 12; ++i) {
        cases_[set].push_back(choices.any(random, static_cast<int>(ranks.size())));
        cases_[set].back().op.set = set;
      }
    }
  }

  template <class AnyMember>
  void run(AnyMember& member, int rounds) const {
    for (const auto& [set, ranks] : sets_) {
      if (set != 0) member.add_set(set, ranks);
    }
    std::minstd_rand order(1);
    for (int round = 0; round < rounds; ++round) {
      const auto set = static_cast<int32_t>(order() % sets_.size());
      const std::vector<Case>& of_set = cases_.at(set);
      const Case& c = of_set[order() % of_set.size()];
      const int index = index_of(sets_.at(set), member.rank);
      if (index >= 0) run_case(member, c, static_cast<size_t>(index));
    }
    for (const auto& [set, ranks] : sets_) {
      if (set != 0) member.remove_set(set);
    }
  }

 private:
  std::map<int32_t, std::vector<int>> sets_;
  std::map<int32_t, std::vector<Case>> cases_;
};

/// Process set 1 is, one after the other, one of several ranks of four.
template <class AnyMember>
void use_a_number_again(AnyMember& member, const Choices& choices) {
  const std::vector<std::vector<int>> rank_lists = {{0, 1}, {1, 3}, {0, 1, 2, 3}, {2}, {0, 2}};
  for (size_t round = 0; round < 20; ++round) {
    const std::vector<int>& ranks = rank_lists[round % rank_lists.size()];
    member.add_set(1, ranks);
    const int index = index_of(ranks, member.rank);
    std::minstd_rand random(static_cast<uint32_t>(round));
    for (int i = 0; index >= 0 && i < 5; ++i) {
      Case c = choices.any(random, static_cast<int>(ranks.size()));
      c.op.set = 1;
      run_case(member, c, static_cast<size_t>(index));
    }
    member.remove_set(1);
  }
}

}  // namespace sirtaki::testing
