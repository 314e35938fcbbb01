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

/// Connects the sequencer on rank 0 to the ranks: takes their reports, sends the batches that the
/// tracks here have room for, and collects what ranks are doing. Guarded by the agreement's lock.
class Sequencing {
 public:
  /// `relay` is null if there are no other hosts.
  Sequencing(RankContext& context, const Backend& backend, Control& control, Relay* relay);

  /// Sends all ranks the settings on which they must agree.
  void begin() { sequencer_.announce_settings(); }
  /// Takes a message (Up …) of rank 0 itself, which does not go through shared memory.
  void receive_own(std::string_view message);
  /// Takes the others' reports, and sends what can be run.
  void advance();

  /// A batch that has begun here keeps its track until it is done.
  void begun(const Request& base) { busy_.push_back(backend_.track_of(base.set)); }
  void done(const Flight& flight);
  void drop() { busy_.clear(); }

  bool has_ready() const { return sequencer_.has_ready(); }
  bool expects_peers() const { return sequencer_.expects_peers(); }
  void set_timeline(Timeline* timeline) { sequencer_.set_timeline(timeline); }

  /// Fails operations that some members have not submitted for too long.
  void check_stalls(int64_t now_ns);
  /// What each rank is blocked in, if all have been for too long; else empty.
  std::string all_blocked(int64_t now_ns);

 private:
  void receive(const Reporters& from, std::string_view message, int64_t now_ns);
  void tell_askers(int64_t now_ns);
  void collect(int64_t now_ns);
  void dispatch(int64_t now_ns);
  std::optional<RankState> state_of_rank(int rank, int64_t now_ns);
  void ask_leaders();

  /// A rank of another host whose leader was asked about its state.
  struct Asked {
    int64_t at_ns = 0;
    RankState answer{};
    bool told = false;  ///< the asker has the answer
  };

  RankContext& context_;
  const Backend& backend_;
  Control& control_;
  Relay* relay_;
  Sequencer sequencer_;
  std::map<int, Asked> asked_;
  std::vector<int> questions_;  ///< ranks whose leaders must be asked
  std::vector<int> askers_;     ///< ranks that want to know what all ranks are doing
  std::vector<int> busy_;       ///< the tracks whose last batch is not done here
};

}  // namespace sirtaki
