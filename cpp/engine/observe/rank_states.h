#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/observe/recorder.h"
#include "transport/hosts.h"

namespace sirtaki {

class SequencerRelay;

/// `for rank 1 to write chunk 5`, where `who` is rank 1; not of Phase::kNone.
std::string wait_text(const Awaited& awaited, const std::string& who);

/// How the state of a rank begins that no collective occupies.
inline constexpr std::string_view kNoOperation = "in no operation";

/// What a rank is doing, for people.
struct RankState {
  std::string text{};
  /// For so long its process has been blocked in our calls; it has no thread that could go on.
  double blocked_seconds = 0;
};

/// What a rank of this host is doing as its flight recorder has it, whether or not it runs: `in
/// allreduce 'x', waiting 9 s for rank 0 to write chunk 3`.
std::string state_text(const Region& region, const HostMap& hosts, int rank, int64_t now_ns);

/// The same, or in what it has said that it is blocked.
RankState state_of(const Region& region, const HostMap& hosts, int rank, int64_t now_ns);

/// What ranks are doing: those of this host are looked at, the leaders of the others are asked.
/// Lives on rank 0; guarded by the engine's lock.
class RankStates {
 public:
  RankStates(const HostMap& hosts, std::shared_ptr<Region> region)
      : hosts_(hosts), region_(std::move(region)) {}

  /// Where there are other hosts.
  void use(SequencerRelay* relay) { relay_ = relay; }

  /// Nothing: it is being asked, for at most a second; come again.
  std::optional<RankState> of(int rank, int64_t now_ns);
  /// Asks about those of whom `of` could not tell.
  void ask();

 private:
  static constexpr int64_t kPatienceNs = 1'000'000'000;
  static constexpr int64_t kFreshNs = 5'000'000'000;

  struct Asked {
    int64_t at_ns = 0;
    RankState answer{};
    bool told = false;  ///< who asked has the answer
  };

  const HostMap& hosts_;
  std::shared_ptr<Region> region_;
  SequencerRelay* relay_ = nullptr;
  std::map<int, Asked> asked_;
  std::vector<int> questions_;
};

}  // namespace sirtaki
