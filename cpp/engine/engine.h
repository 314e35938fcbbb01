#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "engine/agreement.h"
#include "engine/callers.h"
#include "engine/control/peer_watch.h"
#include "engine/driver.h"
#include "engine/ending.h"
#include "engine/execution/launches.h"
#include "engine/execution/runner.h"
#include "engine/observe/exposed.h"
#include "engine/observe/rank_state.h"
#include "engine/options.h"
#include "engine/rank_context.h"
#include "engine/requests/handle.h"
#include "engine/requests/submission.h"

namespace sirtaki {

/// One rank's engine: takes operations, agrees with its peers on their order, runs them.
///
/// It connects the agreement (what is run, in which order), the runner (what is under way), the
/// driver (who makes progress, and when it sleeps) and the ending (shutdown, abort, loss, fork).
class Engine {
 public:
  /// Makes what moves the data; the default is our own transports.
  using MakeBackend =
      std::function<std::unique_ptr<Backend>(Endpoint&, const HostMap& hosts, MakeNetwork)>;

  /// Our own transports; in a world of one none.
  static std::unique_ptr<Backend> make_native(Endpoint& endpoint, const HostMap& hosts,
                                              MakeNetwork make_network);

  /// `region` is shared by the ranks of this rank's host. Ranks that are threads need no local
  /// links on the host of rank 0. `make_network` makes what leads to other hosts. Region and links
  /// are used until `shutdown` has returned.
  Engine(int rank, HostMap hosts, std::shared_ptr<Region> region, LinkSet links,
         MakeNetwork make_network, const EngineOptions& options,
         const MakeBackend& make_backend = make_native);
  ~Engine();
  /// To be owned together: the last owner may be a callback in the engine's own thread.
  static std::shared_ptr<Engine> share(std::unique_ptr<Engine> engine);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Starts an operation. What it is about must stay where it is until the handle is done. Throws
  /// Error(kInvalid) for a name in use or a set the rank is no member of, and the error that ended
  /// the world after that.
  std::shared_ptr<Handle> submit(Submission submission);

  /// The same for a caller that waits for the result next: where it can, this thread takes the
  /// driver's role first, so that no peer wakes the engine thread for it.
  std::shared_ptr<Handle> submit_and_wait(Submission submission, int64_t limit_ns = kForever);

  /// Starts a send or receive beside the collectives; the transfer's communicator is the number of
  /// a process set, its owner the handle; without one it gets a new one. Its memory must stay until
  /// the handle is done. Throws Error(kInvalid) for a transfer that cannot be.
  std::shared_ptr<Handle> start(Transfer transfer);
  /// The same for a caller that waits for it next.
  std::shared_ptr<Handle> start_and_wait(Transfer transfer, int64_t limit_ns = kForever);
  /// Takes back a receive that no message has come for: it fails, and its memory is left alone.
  /// Any other transfer goes on.
  void withdraw(const std::shared_ptr<Handle>& handle);

  /// All ranks wait for one another, which ends the world.
  std::optional<Error> deadlock() const { return ending_.deadlock(); }

  /// Returns true when the handle is done, false if it is not at `limit_ns` on the monotonic clock.
  bool wait(Handle& handle, int64_t limit_ns = kForever);

  /// For a scheduler, where options.own_threads is false: one round of everything that has threads
  /// else. Waits for nobody. Returns until when nothing needs to be done unless something comes.
  int64_t step(int64_t now_ns) { return std::min(watch_.step(now_ns), driver_.step(now_ns)); }
  /// Says that this rank leaves. `shutdown` does the rest, and waits for nobody once `left()`.
  void leave() { agreement_.leave(); }
  bool left() { return ending_.closed() && watch_.left(); }

  /// Runs `work` with the backend to itself, for measurements; every rank must do the same, with
  /// nothing else under way.
  void with_backend(const std::function<void(Backend&, const Doorbell&)>& work);

  /// Leaves the world in good order; what is not finished anywhere fails. Idempotent. In a forked
  /// child of the process that made the engine nothing happens. True if the ranks have not lost one
  /// another, so that another engine may use region and links.
  bool shutdown();

  /// Ends the world at once, for all ranks: what is under way fails, and names this rank.
  void abort(const std::string& why);

  /// Throws in a forked child, as does everything but shutdown() and backend_name(): it has none of
  /// the engine's threads, and what it did would count as its parent's.
  void require_own_process() const { context_.require_own_process(); }

  void start_timeline(const std::string& path, bool mark_cycles);
  void stop_timeline();

  /// What a rank is doing, and of a rank of this host its operations as well.
  struct Snapshot {
    int rank;
    RankState state;                   ///< not known of other hosts that have not answered
    std::vector<Recorded> operations;  ///< oldest first: those not done, and the latest others
  };
  /// Of each rank of the world; with its latest `most` operations that have ended. May be asked
  /// while this engine is stuck and of ranks that are stopped or dead. Waits for other hosts'
  /// answers until `limit_ns`; 0: for nobody.
  std::vector<Snapshot> snapshot(size_t most, int64_t limit_ns = 0);

  /// Where this rank's operations are written down, and who hears of them.
  Recorder& recorder() { return context_.recorder; }
  Hooks& hooks() { return context_.hooks; }

  /// How often something has been moved on; from any thread.
  uint64_t moves() const { return driver_.moves(); }
  /// A thread of the user's waits in `submit_and_wait` while that lives; the other calls that wait
  /// say so themselves. Not of a framework's own threads, which only wait for a while.
  Exposed exposed() const { return Exposed(own_block()); }
  /// A thread has asked for the result of an operation that was done.
  void note_wait() { Exposed::note(own_block()); }
  /// What is written down of the operation that the handle is for, or of its message since then.
  FlightRecord::Words words_of(const Handle& handle, int64_t since_ns);
  /// Tells the others that a thread of this process has been blocked in that for so long (negative:
  /// and that other threads can go on).
  void tell_blocked(int64_t blocked_ns, int64_t now_ns, const FlightRecord::Words& what);

  /// Copy of the known process sets.
  std::map<int32_t, std::vector<int>> process_sets();

  /// The operations on accelerators, which the caller launches. Outlives the engine.
  const std::shared_ptr<Launches>& launches() const { return launches_; }

  int rank() const { return context_.rank; }
  int size() const { return context_.size; }
  const char* backend_name() const { return backend_->name(); }
  /// The shared heaps of this host's ranks; null: they have none.
  const PeerHeaps* heaps() const { return context_.links.heaps; }

 private:
  RankBlock& own_block() const { return context_.region->rank(context_.place); }
  Agreement::Events agreement_events();
  Driver::Events driver_events();
  std::shared_ptr<Handle> submit_beside_driver(Submission submission);
  std::shared_ptr<Handle> submit_as_driver(Submission submission, int64_t limit_ns);
  template <class Submit>
  std::shared_ptr<Handle> tell_hooks(Submission submission, Submit submit);
  std::shared_ptr<Handle> handle_of(Transfer& transfer);
  std::string impossible(const Transfer& transfer);
  template <class Then>
  void begin(Transfer transfer, Then then);
  void log_start() const;
  static void end_shared(Engine* engine) noexcept;

  RankContext context_;
  const std::shared_ptr<Launches> launches_;
  std::unique_ptr<Backend> backend_;
  PeerWatch watch_;
  Agreement agreement_;
  Runner runner_;
  Driver driver_;
  Ending ending_;
};

}  // namespace sirtaki
