#pragma once

#include <map>
#include <optional>
#include <vector>

#include "engine/observe/rank_state.h"
#include "engine/rank_context.h"

namespace sirtaki {

class Relay;

/// What ranks are doing: those of this host are looked at, the leaders of the others are asked.
/// Lives on rank 0; guarded by the engine's lock.
class RankStates {
 public:
  /// `relay` is null where there are no other hosts.
  RankStates(const RankContext& context, Relay* relay) : context_(context), relay_(relay) {}

  /// Nothing: it is being asked, for at most a second; come again. Then, if there was no answer,
  /// one that is not known.
  std::optional<RankState> of(int rank, int64_t now_ns);
  /// Asks about those of whom `of` could not tell.
  void ask();
  /// Who asks next wants to know what they are doing then.
  void forget() { asked_.clear(); }

 private:
  static constexpr int64_t kPatienceNs = 1'000'000'000;
  static constexpr int64_t kFreshNs = 5'000'000'000;

  struct Asked {
    int64_t at_ns = 0;
    RankState answer{};
    bool told = false;  ///< who asked has the answer
  };

  const RankContext& context_;
  Relay* relay_;
  std::map<int, Asked> asked_;
  std::vector<int> questions_;
};

}  // namespace sirtaki
