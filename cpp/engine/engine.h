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

/// One rank's engine: accepts operations, agrees with its peers on their order, runs them.
///
/// It connects the agreement (the order of operations), the runner (those in progress), the driver
/// (which thread makes progress, and when it sleeps) and the ending (shutdown, abort, loss, fork).
class Engine final : Agreement::Listener, Runner::Listener, Driver::Listener {
 public:
  /// Makes the backend that moves the data; by default one of this library's transports.
  using MakeBackend =
      std::function<std::unique_ptr<Backend>(Endpoint&, const HostMap& hosts, MakeNetwork)>;

  /// A backend of this library's transports.
  static std::unique_ptr<Backend> make_native(Endpoint& endpoint, const HostMap& hosts,
                                              MakeNetwork make_network);

  /// The ranks of this rank's host share `region`. Ranks that are threads need no local links on
  /// the host of rank 0. `make_network` makes the network to other hosts. The engine uses region
  /// and links until `shutdown` has returned.
  Engine(int rank, HostMap hosts, std::shared_ptr<Region> region, LinkSet links,
         MakeNetwork make_network, const EngineOptions& options,
         const MakeBackend& make_backend = make_native);
  ~Engine();
  /// For shared ownership: the last owner may be a callback in the engine's own thread.
  static std::shared_ptr<Engine> share(std::unique_ptr<Engine> engine);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Starts an operation. Its memory must stay in place until the handle is done. Throws
  /// Error(kInvalid) for a name in use or a set that the rank does not belong to and, after the
  /// world has ended, the error that ended it.
  std::shared_ptr<Handle> submit(Submission submission);

  /// The same for a caller that waits for the result next: if possible, this thread takes the
  /// driver's role first, so that no peer wakes the engine thread for it.
  std::shared_ptr<Handle> submit_and_wait(Submission submission, int64_t limit_ns = kForever);

  /// Starts a send or receive beside the collectives. The transfer's communicator is the number of
  /// a process set; its owner is the handle, or else a new one. Its memory must stay until the
  /// handle is done. Throws Error(kInvalid) for an impossible transfer.
  std::shared_ptr<Handle> start(Transfer transfer);
  /// The same for a caller that waits for it next.
  std::shared_ptr<Handle> start_and_wait(Transfer transfer, int64_t limit_ns = kForever);
  /// Withdraws a receive for which no message has arrived: it fails, and its memory is not written.
  /// Any other transfer continues.
  void withdraw(const std::shared_ptr<Handle>& handle);

  /// The error if all ranks wait for one another, which ends the world.
  std::optional<Error> deadlock() const { return ending_.deadlock(); }

  /// Returns true when the handle is done, false if it is not at `limit_ns` on the monotonic clock.
  bool wait(Handle& handle, int64_t limit_ns = kForever);

  /// For a scheduler, with options.own_threads false: one round of all that otherwise has threads.
  /// Never waits. Returns until when nothing needs to be done unless a message comes.
  int64_t step(int64_t now_ns) { return std::min(watch_.step(now_ns), driver_.step(now_ns)); }
  /// Announces that this rank leaves. `shutdown` does the rest, without waiting once `left()`.
  void leave() { agreement_.leave(); }
  bool left() { return ending_.closed() && watch_.left(); }

  /// Announces that this rank submits nothing more. It still takes part in what it has submitted;
  /// what others submit without it fails.
  void finish();

  /// Runs `work` with exclusive use of the backend, for measurements; every rank must do the same,
  /// with nothing else in progress.
  void with_backend(const std::function<void(Backend&, const Doorbell&)>& work);

  /// Leaves the world in good order; unfinished operations fail. Idempotent. Does nothing in a
  /// forked child of the process that made the engine. True if the ranks have not lost each other,
  /// so that another engine may use region and links.
  bool shutdown();

  /// Ends the world at once, for all ranks: operations in progress fail, naming this rank.
  void abort(const std::string& why) { ending_.abort(why); }

  /// Throws in a forked child, as does everything but shutdown() and backend_name(): the child has
  /// none of the engine's threads, and its actions would count as its parent's.
  void require_own_process() const { context_.require_own_process(); }

  void start_timeline(const std::string& path, bool mark_cycles);
  void stop_timeline();

  /// What a rank is doing and, for a rank of this host, its operations.
  struct Snapshot {
    int rank;
    RankState state;                   ///< unknown for other hosts that have not answered
    std::vector<Recorded> operations;  ///< oldest first: unfinished ones and the latest others
  };
  /// Of each rank of the world, with its latest `most` operations that have ended. Callable while
  /// this engine is stuck, and about ranks that are stopped or dead. Waits for other hosts' answers
  /// until `limit_ns`; 0: does not wait.
  std::vector<Snapshot> snapshot(size_t most, int64_t limit_ns = 0);
  /// What a rank of this host has counted, callable as `snapshot` is; null for one of another host.
  const RankBlock* block_of(int rank) const;

  /// Records this rank's operations and calls their hooks.
  Recorder& recorder() { return context_.recorder; }
  Hooks& hooks() { return context_.hooks; }

  /// How often work has progressed; from any thread.
  uint64_t moves() const { return driver_.moves(); }
  /// Counts a user's thread as waiting in `submit_and_wait` while it lives; the other waiting calls
  /// count themselves. Not for a framework's own threads, which wait only for a while.
  Exposed exposed() const { return Exposed(own_block()); }
  /// Counts a request for the result of a finished operation.
  void note_wait() { Exposed::note(own_block()); }
  /// The record of the handle's operation, or of its message since then.
  FlightRecord::Words words_of(const Handle& handle, int64_t since_ns);
  /// Shows the others how long this has blocked a thread of this process (negative: and other
  /// threads can go on).
  void tell_blocked(int64_t blocked_ns, int64_t now_ns, const FlightRecord::Words& what);

  /// Copy of the known process sets.
  std::map<int32_t, std::vector<int>> process_sets();

  /// The operations on accelerators, which the caller launches. They outlive the engine.
  const std::shared_ptr<Launches>& launches() const { return launches_; }

  int rank() const { return context_.rank; }
  int size() const { return context_.size; }
  const char* backend_name() const { return backend_->name(); }
  /// The shared heaps of this host's ranks; null if there are none.
  const PeerHeaps* heaps() const { return context_.links.heaps; }

 private:
  RankBlock& own_block() const { return context_.region->rank(context_.place); }
  void run(Batch batch) override { runner_.add(std::move(batch)); }
  void refuse(const Entry& entry, const Error& error) override { runner_.complete(entry, error); }
  void meet(int rank) override { runner_.pairs().meet(rank); }
  void close() override { ending_.close(); }
  void fail(const std::exception& error) override { ending_.fail(error); }
  void look_around(int64_t now_ns) override;
  std::shared_ptr<Handle> submit_beside_driver(Submission&& submission);
  std::shared_ptr<Handle> submit_as_driver(Submission&& submission, int64_t limit_ns);
  template <class Submit>
  std::shared_ptr<Handle> tell_hooks(Submission&& submission, Submit submit);
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
