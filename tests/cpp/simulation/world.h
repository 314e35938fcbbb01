#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/machine.h"
#include "simulation/fabric.h"
#include "simulation/program.h"
#include "simulation/simulated_network.h"
#include "transport/network/links.h"
#include "transport/network/renewal.h"

namespace sirtaki::testing {

/// What was found wrong in a run, with what happened until then.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Processes on several hosts whose engines one thread runs, in an order that a seed decides. A
/// rank runs only when something wakes it or its time has come, as it would with threads.
///
/// Not so exact are the leaders' relays: they look whenever a rank of their host has run.
class World final : public machine::Simulation {
 public:
  World(std::vector<int> host_of, int fan_out, uint64_t seed);
  ~World() override;

  int64_t now_ns() override { return fabric_.now_ns(); }
  void nap(int64_t ns) override { fabric_.set_time(now_ns() + ns); }
  [[noreturn]] void sleep() override { throw Violation("a thread would sleep"); }
  void wake(const void* word) override;
  void ring(int event) override;

  int size() const { return hosts_.size(); }
  const HostMap& hosts() const { return hosts_; }
  Fabric& fabric() { return fabric_; }
  std::mt19937_64& random() { return random_; }
  Engine& engine(int rank) { return *process(rank).engine; }

  /// The ranks' engines begin, as the first or the next ones of their links.
  void begin();
  /// All that live agree to go on with their links: true if they do.
  bool renew();
  /// Ends what has been left, or lost.
  void end();

  /// The process ends, and its kernel hangs up.
  void kill(int rank);
  /// The host has no power any more.
  void lose_host(int host);
  /// The process does nothing for so long.
  void stop(int rank, int64_t ns);
  /// Its own thread has something to do.
  void let_run(int rank) { process(rank).runnable = true; }
  bool lives(int rank) const { return processes_[static_cast<size_t>(rank)].lives; }

  /// At that time.
  void at(int64_t ns, std::function<void()> what) { events_.emplace(ns, std::move(what)); }
  /// Runs ranks until `done()`, which is asked after each step; `runs(rank)` says what a rank's own
  /// thread does before and after its engine's round. False if that took longer than until
  /// `limit_ns`.
  bool run(const std::function<void(int rank)>& runs, const std::function<bool()>& done,
           int64_t limit_ns);
  /// Why its world ended; none: it goes on, or ended in good order.
  std::optional<Loss> loss(int rank) const;

  void trace(const std::string& what);
  /// The last things that happened.
  std::string history() const;
  uint64_t steps() const { return steps_; }

 private:
  struct Process {
    bool lives = true;
    bool runnable = true;
    bool looks = false;  ///< it runs because its time has come
    int64_t stopped_until = 0;
    int64_t wakes_ns = 0;
    std::shared_ptr<Links> links{};
    std::unique_ptr<Engine> engine{};
    std::vector<SimulatedNetwork*> networks{};
  };

  Process& process(int rank) { return processes_[static_cast<size_t>(rank)]; }
  void make_links();
  std::unique_ptr<Network> make_network(int rank, const NetworkUse& use);
  void wake_rank(int rank);
  bool may_run(const Process& process) const;
  void step(int rank, const std::function<void(int)>& runs);
  int64_t next_ns() const;

  const HostMap hosts_;
  std::mt19937_64 random_;
  Fabric fabric_;
  std::vector<std::shared_ptr<Region>> regions_;
  std::vector<Process> processes_;
  std::map<const void*, int> words_;  ///< where ranks' engines sleep
  std::multimap<int64_t, std::function<void()>> events_;
  std::vector<Fabric::Guard> guards_;
  int running_ = 0;  ///< the rank
  uint64_t steps_ = 0;
  std::vector<std::string> history_;
};

}  // namespace sirtaki::testing
