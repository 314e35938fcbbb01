#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "engine/control/control.h"
#include "engine/execution/flight.h"
#include "engine/execution/negotiation.h"
#include "engine/rank_context.h"
#include "engine/requests/handle.h"
#include "engine/requests/submission.h"
#include "engine/sequencer/sequencing.h"

namespace sirtaki {

/// What the ranks agree on: these operations, in this order. A rank tells rank 0 what it submits,
/// and rank 0 tells all members when all of them have.
///
/// It has one lock and never waits. Whoever submits is in it for a moment, and the driver.
class Agreement {
 public:
  /// What comes of it, under the lock; only `refused` and `lost` in other threads than the driver.
  struct Events {
    /// This is to be run, behind what came before.
    std::function<void(Batch)> run;
    /// This cannot be run.
    std::function<void(const Entry&, const Error&)> refused;
    /// A rank of another host wants to connect.
    std::function<void(int rank)> met;
    std::function<void(const Loss&)> lost;
  };

  Agreement(RankContext& context, const Backend& backend, const Control::Carrier& carrier,
            Events events);

  // From any thread.

  /// Tells all ranks the settings on which they must agree; before anything else.
  void begin();
  /// Takes what this rank wants done. Throws Error(kInvalid) for a name in use or a set the rank is
  /// no member of, and the error that ended the world after that.
  std::shared_ptr<Handle> submit(Submission submission);
  /// This rank's driver has something to do of which nobody else tells it.
  bool has_own() const { return control_.has_own(); }
  /// Asks a rank of another host to connect.
  void invite(int rank);
  /// Asks rank 0 what all ranks are doing: once the handle is done, `told` has what is known. Null
  /// after the end.
  std::shared_ptr<Handle> ask();
  std::map<int, RankState> told();
  /// Tells all ranks that this one leaves.
  void leave();
  std::map<int32_t, std::vector<int>> process_sets();
  /// Why a process set cannot be the communicator of a message to or from `peer`; empty: it can.
  std::string not_members(int32_t set, int peer);
  void set_timeline(Timeline* timeline);
  /// Rank 0, now and then: fails operations that stall, ends a world whose ranks are all blocked.
  void check_stalls(int64_t now_ns);

  // The driver.

  /// Hears and says what can be without waiting.
  void advance();
  /// Whether `advance` would do something.
  bool has_work();
  /// The driver polls for room in another rank's ring.
  bool has_backlog() const { return control_.has_backlog(); }
  /// Changed by the driver alone, who reads them without the lock.
  const ProcessSets& sets() const { return sets_; }
  void change_sets(const Request& change);
  /// Rank 0: a batch is done here.
  void done(const Flight& flight);

  /// How the driver leaves.
  struct Rest {
    bool left_over;       ///< something is to be run
    bool hears_requests;  ///< the engine thread wakes for requests
    bool expects_end;     ///< nobody has been told of the world's end yet
  };
  /// From now on the engine thread hears what is for it, and besides, `messages`.
  Rest rest(uint32_t messages);
  /// What came before the engine thread could hear it.
  bool has_news(const Rest& rest) const;

  // The ending.

  /// Nothing more is agreed on. The first reason is kept, and returned.
  Error end(const Error& why);
  std::optional<Error> ended();
  /// Drops and returns what waits for other ranks.
  std::vector<std::unique_ptr<Entry>> drop();
  /// What is waited for, to be put behind a message.
  std::string phase();
  /// The sequencer has said something that the driver has not read.
  bool has_unread() const { return control_.has_down(); }

 private:
  Negotiation::Events negotiation_events();
  void receive_batch(std::vector<Item> items);
  void receive_tune(int64_t chunk_bytes);
  void receive_meet(int rank) const;
  void receive_shutdown(int rank);
  void receive_states(Reader& states);

  std::unique_ptr<Entry> entry_of(Submission submission) const;
  void require_member(const Request& asked) const;
  void withdraw(const Entry& entry, const std::string& why);
  void tell(std::string_view message, bool urgent);
  void check_deadlock(int64_t now_ns);

  RankContext& context_;
  const Events events_;

  std::mutex mutex_;  ///< guards what follows
  ProcessSets sets_;
  Negotiation negotiation_;
  Control control_;
  std::unique_ptr<Sequencing> sequencing_;  ///< rank 0 only
  std::optional<Error> ended_;
  std::shared_ptr<Handle> asked_;
  std::map<int, RankState> told_;
  size_t chunk_bytes_;
  uint32_t looks_ = 0;  ///< the driver's
};

}  // namespace sirtaki
