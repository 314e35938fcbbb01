#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "engine/control/control.h"
#include "engine/execution/flight.h"
#include "engine/observe/rank_state.h"
#include "engine/rank_context.h"
#include "engine/sequencer/sequencer.h"

namespace sirtaki {

/// The sequencer on rank 0 among the ranks that it hears: takes what they report, lets go what the
/// tracks here have room for, and finds out what ranks are doing. Guarded by the agreement's lock.
class Sequencing {
 public:
  /// `relay` is null where there are no other hosts.
  Sequencing(RankContext& context, const Backend& backend, Control& control, Relay* relay);

  /// Tells all ranks the settings on which they must agree.
  void begin() { sequencer_.announce_settings(); }
  /// Takes a message (Up …) of rank 0 itself, which does not go by shared memory.
  void receive_own(std::string_view message);
  /// Takes what the others have reported, and sends what can be run.
  void advance();

  /// A batch that has begun here keeps its track until it is done.
  void begun(const Request& base);
  void done(const Flight& flight);
  void drop() { busy_.clear(); }

  bool has_ready() const { return sequencer_.has_ready(); }
  bool expects_peers() const { return sequencer_.expects_peers(); }
  void set_timeline(Timeline* timeline) { sequencer_.set_timeline(timeline); }

  /// Operations that some members have not submitted for too long fail.
  void check_stalls(int64_t now_ns);
  /// What every rank is blocked in, if all have been for so long; else empty.
  std::string all_blocked(int64_t now_ns);

 private:
  void receive(const Reporters& from, std::string_view message, int64_t now_ns);
  void tell_askers(int64_t now_ns);
  void collect(int64_t now_ns);
  void dispatch(int64_t now_ns);
  std::optional<RankState> state_of_rank(int rank, int64_t now_ns);
  void ask_leaders();

  /// A rank of another host whose leader was asked what it is doing.
  struct Asked {
    int64_t at_ns = 0;
    RankState answer{};
    bool told = false;  ///< who asked has the answer
  };

  RankContext& context_;
  const Backend& backend_;
  Control& control_;
  Relay* relay_;
  Sequencer sequencer_;
  std::map<int, Asked> asked_;
  std::vector<int> questions_;  ///< ranks whose leaders are to be asked
  std::vector<int> askers_;     ///< ranks that want to know what all are doing
  std::vector<int> busy_;       ///< the tracks whose last batch is not done here
};

}  // namespace sirtaki
