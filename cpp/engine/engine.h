#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "base/fork_mark.h"
#include "base/log.h"
#include "engine/callbacks.h"
#include "engine/callers.h"
#include "engine/control/control.h"
#include "engine/control/relay.h"
#include "engine/execution/executor.h"
#include "engine/execution/launches.h"
#include "engine/execution/negotiation.h"
#include "engine/execution/runner.h"
#include "engine/observe/rank_states.h"
#include "engine/observe/recorder.h"
#include "engine/observe/timeline.h"
#include "engine/options.h"
#include "engine/requests/handle.h"
#include "engine/sequencer/sequencer.h"
#include "engine/sleepers.h"
#include "pairs/pairs.h"
#include "transport/group.h"
#include "transport/hosts.h"
#include "transport/network/links.h"
#include "transport/network/watcher.h"

namespace sirtaki {

/// What a caller wants done.
struct Submission {
  Request request;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;   ///< none for kinds whose result size is negotiated
  Allocate allocate = nullptr;  ///< memory for the results of these; null: the engine's own
  std::shared_ptr<Handle> handle = nullptr;  ///< the operation's; null: a new one
  int64_t number = 0;                        ///< of what the caller launches, in `launches`
};

/// One rank's engine: takes operations, agrees with its peers on their order, runs them.
///
/// Progress is made by one thread at a time, the driver: a thread that waits for a handle where
/// there is one (so a blocking call costs no thread switch), else the engine's own thread, which
/// sleeps until rung.
class Engine {
 public:
  static constexpr int64_t kForever = INT64_MAX;

  /// Makes what moves the data; the default is our own transports.
  using MakeBackend =
      std::function<std::unique_ptr<Backend>(Endpoint&, const HostMap& hosts, Connect)>;

  /// Our own transports; in a world of one none.
  static std::unique_ptr<Backend> make_native(Endpoint& endpoint, const HostMap& hosts,
                                              Connect connect);

  /// `region` is shared by the ranks of this rank's host. Ranks that are threads need no local
  /// links on the host of rank 0. `connect` may be called from any thread. Region and links are
  /// used until `shutdown` has returned.
  Engine(int rank, HostMap hosts, std::shared_ptr<Region> region, LinkSet links, Connect connect,
         const EngineOptions& options, const MakeBackend& make_backend = make_native);
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

  /// Returns true when the handle is done, false if it is not at `limit_ns` on the monotonic clock.
  bool wait(Handle& handle, int64_t limit_ns = kForever);

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
  void require_own_process() const;

  void start_timeline(const std::string& path, bool mark_cycles);
  void stop_timeline();

  /// What a rank of this host has written down of its operations.
  struct RankRecords {
    int rank;
    std::vector<Recorded> operations;  ///< oldest first: those not done, and the latest others
  };
  /// Of each rank of this host with its latest `most` operations that have ended. Waits for nobody,
  /// so it may be asked while this engine is stuck and of ranks that are stopped or dead.
  std::vector<RankRecords> snapshot(size_t most) const;

  /// How often something has been moved on; from any thread.
  uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }
  /// What this rank is doing, for people.
  std::string own_state(int64_t now_ns);
  /// Tells the others that this process's only caller has been blocked for so long.
  void tell_blocked(int64_t blocked_ns, int64_t now_ns, const std::string& what);

  /// Copy of the known process sets.
  std::map<int32_t, std::vector<int>> process_sets();

  /// The operations on accelerators, which the caller launches. Outlives the engine.
  const std::shared_ptr<Launches>& launches() const { return launches_; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const char* backend_name() const { return backend_->name(); }
  /// The shared heaps of this host's ranks; null: they have none.
  const PeerHeaps* heaps() const { return links_.heaps; }

 private:
  /// How the driver leaves.
  struct Rest {
    bool left_over;       ///< something is to be run
    bool hears_requests;  ///< the engine thread wakes for requests
    bool hears_pairs;     ///< the engine thread wakes for messages of single ranks
    bool expects_end;     ///< nobody has been told of the world's end yet
  };

  void join_hosts();
  void check_open() const;
  std::shared_ptr<Handle> enqueue(Submission submission);
  void announce(const Entry& entry);
  void require_splits(const Request& asked) const;
  void withdraw(const Entry& entry, const std::string& why);
  void sequence_own(std::string_view message);
  void collect_requests();
  void dispatch();
  template <class Receive>
  void receive_up(int rank, Receive receive);

  class Role;
  bool take_role();
  bool try_role();
  template <class Work>
  void guard(Work work);
  template <class Done>
  void drive(bool caller, Done done);
  bool progress();
  bool has_work();
  Rest rest();
  bool has_news(const Rest& rest);
  Runner::Events runner_events();
  void complete(const Entry& entry, std::optional<Error> error);
  void end(const Item& item, const std::optional<Error>& error);
  void flight_begun(Flight& flight);
  void flight_goes_on(Flight& flight);
  void flight_done(Flight& flight, const std::optional<Error>& error);
  std::shared_ptr<Timeline> timeline();
  Sleep sleep_for();
  void note_waits();
  void require_progress(Flight& flight, int64_t now_ns);
  void require_pairs_progress(int64_t now_ns);
  void give_up_waiting(const std::string& what, const Awaited& awaited, int64_t now_ns);
  int64_t data_timeout_ns() const;
  void close();
  void engine_loop();
  void check_stalls();
  void check_deadlock(int64_t now_ns);
  void give_up_beside_driver(const std::string& why);

  Negotiation::Events negotiation_events();
  void receive_batch(std::vector<Item> items);
  void receive_flush(std::string_view answer);
  void receive_tune(int64_t chunk_bytes);
  void receive_shutdown(int rank);
  void receive_meet(int rank);

  Pairs::Events pairs_events();
  std::string impossible(const Transfer& transfer);
  void require_possible(const Transfer& transfer);
  std::shared_ptr<Handle> handle_of(Transfer& transfer);
  template <class Then>
  void begin(Transfer transfer, Then then);
  void invite(int rank);
  void end_pairs();
  void warn_of_leftovers();

  static void end_shared(Engine* engine) noexcept;
  void say_goodbye();
  void abandon();
  void give_up(const Error& error);
  void fail_all(const Error& error);
  void peer_lost(int rank);
  bool hears_end();
  void lose(int rank, const std::string& why);
  void tell_relay() const;
  void abort_world(int rank);
  Error lost_error(const Loss& loss);
  std::string cause_of(const Loss& loss) const;
  std::string phase();
  void log_start() const;
  void log_run(const Flight& flight) const;
  std::string rank_text(int rank) const;

  const HostMap hosts_;
  const int rank_;
  const int place_;  ///< on the host
  const int size_;
  const ForkMark mark_;
  const EngineOptions options_;
  const std::function<std::string(int rank)> why_broken_;
  const Log log_;
  Callbacks callbacks_;
  std::shared_ptr<Region> region_;
  const LinkSet links_;
  Endpoint endpoint_;
  std::unique_ptr<Backend> backend_;
  ProcessSets sets_;
  const std::shared_ptr<Launches> launches_ = std::make_shared<Launches>();
  Executor executor_;
  Recorder recorder_;

  std::mutex driver_;  ///< held by whoever drives; guards runner_, pairs_, endpoint_ and
                       ///< backend_
  Sleepers sleepers_;
  Runner runner_;
  Pairs pairs_;
  uint32_t looks_ = 0;
  int64_t stall_check_ns_ = 0;  ///< when the engine thread looks for stalls though it drives
  bool stalls_due_ = false;     ///< that time has come

  std::mutex mutex_;  ///< guards everything below and sets_
  Negotiation negotiation_;
  Control control_;
  std::unique_ptr<Sequencer> sequencer_;  ///< rank 0 only
  RankStates states_;                     ///< the same
  std::shared_ptr<Timeline> timeline_;
  std::optional<Error> ended_;
  size_t chunk_bytes_;
  std::vector<int> busy_;  ///< rank 0: the lanes whose last batch is not done here
  Handle closed_;          ///< done when nothing more will be run

  std::atomic<bool> has_timeline_{false};
  std::atomic<uint64_t> moves_{0};
  std::atomic<bool> closing_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
  std::unique_ptr<Relay> relay_;  ///< on leaders where there are several hosts
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace sirtaki
