#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "engine/agreement.h"
#include "engine/control/peer_watch.h"
#include "engine/driver.h"
#include "engine/execution/launches.h"
#include "engine/execution/runner.h"
#include "engine/rank_context.h"

namespace sirtaki {

/// How a rank leaves its world or loses it. In good order all ranks are notified, and only
/// operations that nobody can finish fail; after a loss everything fails with its first reason.
class Ending {
 public:
  Ending(RankContext& context, Agreement& agreement, Runner& runner, Driver& driver,
         PeerWatch& watch, Launches& launches);

  /// True the first time.
  bool begin() { return !closing_.exchange(true); }
  /// Whether nothing more will be run.
  bool closed() const { return closed_.done(); }
  /// Leaves the world; true if the ranks have not lost each other.
  bool finish();

  /// The driver: nothing more will be run. From now on the end of this process hurts no other.
  void close();
  /// The driver: an exception ends the world.
  void fail(const std::exception& error);
  /// Any thread: the world ends at once.
  void abort(const std::string& why);
  /// The watch: a process of this host has ended. False: it may have left in good order, which the
  /// driver has yet to read.
  bool lose_peer(int rank);

  /// Any thread: the error if the world ended because all ranks wait for one another.
  std::optional<Error> deadlock() const;

 private:
  void warn_of_leftovers();
  void give_up(const Error& error);
  void fail_all(const Error& error);
  /// Whether this rank has been notified that nothing more will be run, and why.
  bool hears_end() { return agreement_.ended().has_value() || context_.doorbell.aborted(); }
  Error lost_error(const Loss& loss);
  std::string cause_of(const Loss& loss) const;
  std::string phase();

  RankContext& context_;
  Agreement& agreement_;
  Runner& runner_;
  Driver& driver_;
  PeerWatch& watch_;
  Launches& launches_;
  std::atomic<bool> closing_{false};
  Handle closed_;  ///< done when nothing more will be run
};

}  // namespace sirtaki
