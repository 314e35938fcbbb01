#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "engine/control/control.h"
#include "engine/control/peer_watch.h"
#include "engine/execution/flight.h"
#include "engine/execution/negotiation.h"
#include "engine/rank_context.h"
#include "engine/requests/handle.h"
#include "engine/requests/submission.h"
#include "engine/sequencer/sequencing.h"

namespace sirtaki {

/// What the ranks agree on: these operations, in this order. A rank reports its submissions to rank
/// 0, and rank 0 notifies all members once all of them have submitted an operation.
///
/// It has one lock and never waits. Submitting threads and the driver hold the lock only briefly.
class Agreement final : Negotiation::Listener {
 public:
  /// Receives the outcomes, under the lock; threads other than the driver call only `refuse`.
  class Listener {
   public:
    /// A batch to run, after the earlier ones.
    virtual void run(Batch batch) = 0;
    /// An operation that cannot be run.
    virtual void refuse(const Entry& entry, const Error& error) = 0;
    /// A rank of another host wants to connect.
    virtual void meet(int rank) = 0;

   protected:
    ~Listener() = default;
  };

  /// Ends the world by `watch`.
  Agreement(RankContext& context, const Backend& backend, const PeerWatch& watch,
            Listener& listener);

  // From any thread.

  /// Sends all ranks the settings on which they must agree; the first call.
  void begin();
  /// Takes a request of this rank. Throws Error(kInvalid) for a name in use or a set that the rank
  /// does not belong to and, after the world has ended, the error that ended it.
  std::shared_ptr<Handle> submit(Submission&& submission);
  /// Whether this rank's driver has a message of which no other rank notifies it.
  bool has_own() const { return control_.has_own() || has_offer_.load(); }
  /// Asks a rank of another host to connect.
  void invite(int rank);
  /// Asks rank 0 what all ranks are doing: once the handle is done, `told` returns the answer. Null
  /// after the end.
  std::shared_ptr<Handle> ask();
  std::map<int, RankState> told();
  /// Announces to all ranks that this one leaves.
  void leave();
  /// Announces that this rank submits nothing more.
  void finish();
  std::map<int32_t, std::vector<int>> process_sets();
  /// Why a process set cannot be the communicator of a message to or from `peer`; empty if it can.
  std::string not_members(int32_t set, int peer);
  void set_timeline(Timeline* timeline);
  /// Rank 0, periodically: fails operations that stall, ends a world whose ranks are all blocked.
  void check_stalls(int64_t now_ns);

  // The driver.

  /// Receives and sends what it can without waiting.
  void advance();
  /// Whether `advance` would do something.
  bool has_work();
  /// Whether the driver must poll for room in another rank's ring.
  bool has_backlog() const { return control_.has_backlog(); }
  /// Only the driver changes them, and reads them without the lock.
  const ProcessSets& sets() const { return sets_; }
  void change_sets(const Request& change);
  /// Rank 0: a batch is done on this rank.
  void done(const Flight& flight);

  /// The state in which the driver leaves.
  struct Rest {
    bool left_over;       ///< operations are still to be run
    bool hears_requests;  ///< the engine thread wakes for requests
    bool expects_end;     ///< the world's end has not been reported to anybody yet
  };
  /// From now on the engine thread wakes for its own messages and for `messages`.
  Rest rest(uint32_t messages);
  /// Whether something came before the engine thread could notice it.
  bool has_news(const Rest& rest) const;

  // The ending.

  /// From any thread: agrees on nothing more. Keeps and returns the first reason.
  Error end(const Error& why);
  std::optional<Error> ended();
  /// The driver, whose batches were dropped: drops and returns the operations that wait for others.
  std::vector<std::unique_ptr<Entry>> drop();
  /// The pending operation, as the end of an error message.
  std::string phase();
  /// Whether the sequencer has sent a message that the driver has not read.
  bool has_unread() const { return control_.has_down(); }

 private:
  void receive_batch(std::vector<Item> items) override;
  void receive_refusal(const Entry& entry, const Error& error) override {
    listener_.refuse(entry, error);
  }
  void receive_flush(std::string_view answer) override { tell(answer, true); }
  void receive_tune(int64_t chunk_bytes) override;
  void receive_meet(int rank) override;
  void receive_shutdown(int rank) override;
  void receive_states(Reader& states) override;

  std::unique_ptr<Entry> entry_of(Submission&& submission) const;
  void require_member(const Submission& submission) const;
  void withdraw(const Entry& entry, const std::string& why);
  void tell(std::string_view message, bool urgent);
  void check_deadlock(int64_t now_ns);

  RankContext& context_;
  const PeerWatch& watch_;
  Agreement::Listener& listener_;

  std::mutex mutex_;  ///< guards all members below
  ProcessSets sets_;
  Negotiation negotiation_;
  Control control_;
  std::unique_ptr<Sequencing> sequencing_;  ///< rank 0 only
  std::optional<Error> ended_;
  std::shared_ptr<Handle> asked_;
  std::map<int, RankState> told_;
  size_t chunk_bytes_;
  std::atomic<bool> has_offer_{false};  ///< the driver is to look whether it serves an operation
  uint32_t looks_ = 0;                  ///< used by the driver
};

}  // namespace sirtaki
