#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "requests.h"
#include "simulation/world.h"

// Random programs on random hosts, with random faults: each seed is one run, and replays exactly.
namespace sirtaki {
namespace {

using testing::Begun;
using testing::Fate;
using testing::Frame;
using testing::Planned;
using testing::Program;
using testing::Violation;
using testing::World;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;
/// Nothing may be open for longer.
constexpr int64_t kPatience = 40 * kSecond;

enum class Fault {
  kNone,
  kKill,
  kHost,
  kCut,
  kPartition,
  kOneWay,  ///< of two directions only one is gone
  kStop,
  kPause,  ///< too short to be a fault
  kDelay,
  kBlip,
  kCount,
};
constexpr const char* kFaultNames[] = {"none",         "kill", "host",  "cut",   "partition",
                                       "one-way loss", "stop", "pause", "delay", "blip"};

enum class Phase { kStart, kWork, kShutdown, kRenewal, kCount };
constexpr const char* kPhaseNames[] = {"start", "work", "shutdown", "renewal"};

/// What a seed decides.
struct Plan {
  explicit Plan(uint64_t seed) : random(seed) {
    const bool large = seed % 10 == 0;
    const auto hosts = static_cast<int>(large ? 16 + random() % 49 : 1 + random() % 6);
    for (int host = 0; host < hosts; ++host) {
      for (uint64_t rank = 0; rank <= random() % 2; ++rank) host_of.push_back(host);
    }
    decide(large);
  }
  /// Of a world of an elastic job: who is in it has been decided.
  Plan(uint64_t seed, std::vector<int> members) : random(seed), host_of(std::move(members)) {
    decide(false);
  }

  void decide(bool large) {
    const int hosts = 1 + *std::ranges::max_element(host_of);
    constexpr int kFanOuts[] = {HostTree::kFanOut, 1, 2, 3};
    fan_out = kFanOuts[random() % (large ? 1 : std::size(kFanOuts))];
    fault = random() % 3 == 0 ? Fault::kNone
                              : static_cast<Fault>(random() % static_cast<int>(Fault::kCount));
    phase = static_cast<Phase>(random() % static_cast<int>(Phase::kCount));
    if (hosts == 1 && needs_hosts()) fault = Fault::kKill;
  }

  bool needs_hosts() const {
    return fault != Fault::kNone && fault != Fault::kKill && fault != Fault::kStop &&
           fault != Fault::kPause;
  }
  /// It must leave no trace.
  bool harmless() const {
    return fault == Fault::kNone || fault == Fault::kPause || fault == Fault::kDelay ||
           fault == Fault::kBlip;
  }

  std::mt19937_64 random;
  std::vector<int> host_of;
  int fan_out = 1;
  Fault fault = Fault::kNone;
  Phase phase = Phase::kWork;
};

/// One run.
class Run {
 public:
  explicit Run(Plan plan)
      : plan_(std::move(plan)), world_(plan_.host_of, plan_.fan_out, plan_.random()) {}
  ~Run() { world_.end(); }

  const Plan& plan() const { return plan_; }
  World& world() { return world_; }
  size_t operations() const { return operations_; }
  /// Who is left when a driver has ended whom nobody hears.
  bool survives(int rank) const { return lives(rank) && !unheard_.contains(rank); }

  void go() {
    const int generations = plan_.phase == Phase::kRenewal ? 2 : 1 + plan_.random() % 2;
    for (int generation = 0; generation < generations; ++generation) {
      if (generation > 0 && !renew()) return;
      world_.begin();
      if (!work(Program::random(world_.size(), plan_.random), generation == 0)) return;
      leave(generation == 0);
      if (!whole()) return;
      world_.end();
    }
  }

 private:
  struct Rank {
    std::vector<std::shared_ptr<Handle>> sets{};
    std::vector<int32_t> numbers{0};
    size_t next = 0;
    std::vector<std::unique_ptr<Begun>> begun{};
    size_t judged = 0;
    bool refused = false;  ///< the engine takes nothing more
  };

  [[noreturn]] void fail(const std::string& what) const { throw Violation(what); }

  bool lives(int rank) const { return world_.lives(rank); }
  bool whole() const {
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (!lives(rank) || world_.loss(rank)) return false;
    }
    return true;
  }

  // ---- Phases ----

  bool work(const Program& program, bool first) {
    ranks_ = std::vector<Rank>(static_cast<size_t>(world_.size()));
    if (first && plan_.phase == Phase::kStart) break_something(world_.now_ns() + at_random(kMs));
    if (first && plan_.phase == Phase::kWork) {
      break_something(world_.now_ns() + at_random(20 * kMs));
    }
    const auto runs = [&](int rank) { advance(program, rank); };
    const auto done = [&] {
      for (int rank = 0; rank < world_.size(); ++rank) {
        if (lives(rank) && !is_through(program, rank)) return false;
      }
      return true;
    };
    if (!world_.run(runs, done, world_.now_ns() + kPatience)) fail("open too long: " + open());
    judge_losses();
    return whole();
  }

  void leave(bool first) {
    std::set<int> left;
    if (first && plan_.phase == Phase::kShutdown) {
      break_something(world_.now_ns() + at_random(kMs));
    }
    const auto runs = [&](int rank) {
      if (!left.insert(rank).second) return;
      world_.trace("rank " + std::to_string(rank) + " leaves");
      world_.engine(rank).leave();
    };
    for (int rank = 0; rank < world_.size(); ++rank) world_.let_run(rank);
    const auto done = [&] {
      for (int rank = 0; rank < world_.size(); ++rank) {
        if (lives(rank) && !(left.contains(rank) && world_.engine(rank).left())) return false;
      }
      return true;
    };
    if (!world_.run(runs, done, world_.now_ns() + kPatience)) fail("somebody cannot leave");
    judge_losses();
  }

  bool renew() {
    if (plan_.phase == Phase::kRenewal) break_something(world_.now_ns() + at_random(kMs));
    const bool agreed = world_.renew();
    if (!agreed && plan_.harmless()) fail("the ranks did not go on");
    return agreed;
  }

  // ---- What a rank does ----

  void advance(const Program& program, int rank) {
    Rank& one = ranks_[static_cast<size_t>(rank)];
    judge(rank);
    if (one.refused) return;
    Engine& engine = world_.engine(rank);
    try {
      while (one.sets.size() + 1 < program.sets.size()) {
        const auto& members = program.sets[one.sets.size() + 1];
        Request request = testing::add_set({members.begin(), members.end()});
        request.name += std::to_string(one.sets.size());
        one.sets.push_back(engine.submit({std::move(request), {}, {}}));
      }
      while (one.numbers.size() < program.sets.size()) {
        const Handle& handle = *one.sets[one.numbers.size() - 1];
        if (!handle.done()) return;
        if (handle.error()) throw *handle.error();
        one.numbers.push_back(handle.value);
      }
      for (; one.next < program.list.size(); ++one.next) {
        const Planned& planned = program.list[one.next];
        if (!planned.concerns(rank)) continue;
        if (one.begun.size() - one.judged >= program.window) return;
        const int32_t set = planned.kind == Planned::kMessage ? 0 : one.numbers[planned.set];
        world_.trace("rank " + std::to_string(rank) + " begins " + planned.text());
        one.begun.push_back(std::make_unique<Begun>(engine, planned, set));
        ++operations_;
      }
    } catch (const Error& error) {
      one.refused = true;
      world_.trace("rank " + std::to_string(rank) + " is refused: " + error.what());
      if (!world_.loss(rank)) fail("refused without a reason: " + std::string(error.what()));
    }
  }

  void judge(int rank) {
    Rank& one = ranks_[static_cast<size_t>(rank)];
    for (; one.judged < one.begun.size() && one.begun[one.judged]->done(); ++one.judged) {
      const Begun& begun = *one.begun[one.judged];
      const std::string who = "rank " + std::to_string(rank) + ": " + begun.planned().text();
      const std::string wrong = begun.wrong();
      world_.trace(who +
                   (begun.error() ? " failed: " + std::string(begun.error()->what()) : " is done"));
      if (!wrong.empty()) fail(who + ": " + wrong);
      if (begun.error() && !world_.loss(rank)) fail(who + " failed though nobody is lost");
    }
  }

  bool is_through(const Program& program, int rank) const {
    const Rank& one = ranks_[static_cast<size_t>(rank)];
    const auto done = [](const auto& handle) { return handle->done(); };
    const bool all = one.judged == one.begun.size() && std::ranges::all_of(one.sets, done);
    return all && (one.refused || one.next == program.list.size());
  }

  std::string open() const {
    std::string text;
    for (int rank = 0; rank < world_.size(); ++rank) {
      const Rank& one = ranks_[static_cast<size_t>(rank)];
      if (!lives(rank) || one.judged == one.begun.size()) continue;
      text +=
          " rank " + std::to_string(rank) + ": " + one.begun[one.judged]->planned().text() + ";";
    }
    return text;
  }

  // ---- Faults ----

  int64_t at_random(int64_t most_ns) {
    return static_cast<int64_t>(plan_.random() % static_cast<uint64_t>(most_ns));
  }
  int some_rank() { return static_cast<int>(plan_.random() % plan_.host_of.size()); }
  int host(int rank) const { return world_.hosts().host_of(rank); }

  void break_something(int64_t when_ns) {
    const int a = some_rank();
    int b = some_rank();
    while (plan_.needs_hosts() && host(b) == host(a)) b = some_rank();
    world_.at(when_ns, [this, a, b] { break_now(a, b); });
  }

  void break_now(int a, int b) {
    const int other = host(b);
    const auto crosses = [this, other](const Frame& frame) { return host(frame.to) == other; };
    const auto touches = [this, other](const Frame& frame) {
      return host(frame.to) == other || host(frame.from) == other;
    };
    const std::string hosts = "host " + std::to_string(other);
    switch (plan_.fault) {
      case Fault::kKill:
        blamed_ = {a};
        return world_.kill(a);
      case Fault::kHost:
        for (const int rank : world_.hosts().ranks_on(other)) blamed_.insert(rank);
        return world_.lose_host(other);
      case Fault::kStop:
        blamed_ = unheard_ = {a};
        return world_.stop(a, kSecond * 7);
      case Fault::kPause:
        return world_.stop(a, kMs * 500);
      case Fault::kCut:
        blamed_ = {a, b};
        world_.trace("a connection between ranks " + std::to_string(a) + " and " +
                     std::to_string(b) + " is cut");
        return rule([a, b](const Frame& frame) { return frame.from == a && frame.to == b; },
                    {Fate::kCut}, kForever);
      case Fault::kPartition:
      case Fault::kOneWay:
        for (int rank = 0; rank < world_.size(); ++rank) blamed_.insert(rank);
        for (const int rank : world_.hosts().ranks_on(other)) unheard_.insert(rank);
        world_.trace(hosts + " is cut off" +
                     (plan_.fault == Fault::kOneWay ? " from what others send" : ""));
        if (plan_.fault == Fault::kOneWay) return rule(crosses, {Fate::kDrop}, kForever);
        return rule(touches, {Fate::kDrop}, kForever);
      case Fault::kBlip:
        world_.trace(hosts + " is cut off for two seconds");
        return rule(touches, {Fate::kDrop}, 2 * kSecond);
      case Fault::kDelay:
        world_.trace(hosts + " is slow for a second");
        return rule(touches, {Fate::kDelay, 20 * kMs}, kSecond);
      default:
        return;
    }
  }

  template <class Concerns>
  void rule(Concerns concerns, Fate fate, int64_t for_ns) {
    auto guard = std::make_shared<testing::Fabric::Guard>(
        world_.fabric().add([concerns, fate](const Frame& frame) -> std::optional<Fate> {
          return concerns(frame) ? std::optional(fate) : std::nullopt;
        }));
    guards_.push_back(guard);
    if (for_ns != kForever) world_.at(world_.now_ns() + for_ns, [guard] { guard->reset(); });
  }

  // ---- What must hold ----

  void judge_losses() const {
    std::map<int, int> named;  // who is named, and by how many
    for (int rank = 0; rank < world_.size(); ++rank) {
      const auto loss = world_.loss(rank);
      if (!lives(rank) || !loss) continue;
      const std::string text =
          "rank " + std::to_string(loss->rank) + " is named as lost: " + loss->reason;
      if (plan_.harmless()) fail(text);
      if (!blamed_.contains(loss->rank)) fail(text + ", which lives");
      ++named[loss->rank];
    }
    const bool one_cause = plan_.fault == Fault::kKill || plan_.fault == Fault::kStop;
    if (one_cause && named.size() > 1) fail("survivors name different ranks");
  }

  Plan plan_;
  World world_;
  std::vector<Rank> ranks_;
  std::set<int> blamed_;
  std::set<int> unheard_;  ///< stopped or cut off
  std::vector<std::shared_ptr<testing::Fabric::Guard>> guards_;
  size_t operations_ = 0;
};

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// What runs had in them.
struct Distribution {
  void count(Run& run) {
    const Plan& plan = run.plan();
    const int hosts = run.world().hosts().hosts();
    ++by["hosts " + std::string(hosts == 1 ? "1" : hosts < 16 ? "2 to 6" : "16 to 64")];
    ++by[std::string("fault ") + kFaultNames[static_cast<int>(plan.fault)]];
    ++by[std::string("phase ") + kPhaseNames[static_cast<int>(plan.phase)]];
    operations += run.operations();
    steps += run.world().steps();
    frames += run.world().fabric().frames();
  }
  std::map<std::string, int> by;
  size_t operations = 0;
  size_t steps = 0;
  size_t frames = 0;
};

TEST_CASE("worlds of random programs and faults keep their promises" *
          doctest::test_suite("simulation")) {
  const uint64_t seeds = number_of("SIRTAKI_SIMULATE_SEEDS", 20);
  const uint64_t first = number_of("SIRTAKI_SIMULATE_FIRST", 1);
  Distribution runs;
  int failures = 0;
  for (uint64_t seed = first; seed < first + seeds && failures < 3; ++seed) {
    Run run{Plan(seed)};
    try {
      run.go();
    } catch (const std::exception& error) {
      ++failures;
      FAIL_CHECK("seed " << seed << ": " << std::string(error.what()) << "\n"
                         << run.world().history()
                         << "to run it alone: make simulate SEEDS=1 FIRST=" << seed);
    }
    runs.count(run);
  }
  if (seeds < 100) return;
  for (const auto& [what, times] : runs.by) std::cout << what << ": " << times << "\n";
  std::cout << runs.operations << " operations, " << runs.steps << " steps, " << runs.frames
            << " frames\n";
}

/// The hosts of the members of an elastic job's worlds, in the order of their ranks.
class Members {
 public:
  explicit Members(uint64_t seed) : random_(seed) { join(2 + random_() % 7); }

  /// Survivors come first, so newcomers on their hosts are not beside them in rank.
  void next(const Run& run) {
    std::vector<uint64_t> left;
    for (size_t rank = 0; rank < hosts_.size(); ++rank) {
      if (run.survives(static_cast<int>(rank))) left.push_back(hosts_[rank]);
    }
    hosts_ = std::move(left);
    join(hosts_.empty() ? 1 : random_() % 3);
  }

  /// Hosts are counted as they first come.
  std::vector<int> host_of() const {
    std::map<uint64_t, int> numbers;
    std::vector<int> found;
    for (const uint64_t host : hosts_) {
      found.push_back(numbers.try_emplace(host, static_cast<int>(numbers.size())).first->second);
    }
    return found;
  }

 private:
  void join(uint64_t count) {
    for (; count > 0; --count) hosts_.push_back(random_() % 4);
  }

  std::mt19937_64 random_;
  std::vector<uint64_t> hosts_;
};

TEST_CASE("survivors and newcomers form world after world, whatever phase the last one died in" *
          doctest::test_suite("simulation")) {
  constexpr uint64_t kWorlds = 4;
  // A job is some runs.
  const uint64_t seeds = (number_of("SIRTAKI_SIMULATE_SEEDS", 20) + 9) / 10;
  const uint64_t first = number_of("SIRTAKI_SIMULATE_FIRST", 1);
  Distribution runs;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Members members(seed);
    for (uint64_t world = 0; world < kWorlds; ++world) {
      Run run{Plan(seed * kWorlds + world, members.host_of())};
      try {
        run.go();
      } catch (const std::exception& error) {
        FAIL("job " << seed << ", world " << world << ": " << std::string(error.what()) << "\n"
                    << run.world().history()
                    << "to run it alone: make simulate SEEDS=1 FIRST=" << seed);
      }
      runs.count(run);
      members.next(run);
    }
  }
  if (seeds < 100) return;
  for (const auto& [what, times] : runs.by)
    std::cout << "elastic " << what << ": " << times << "\n";
}

}  // namespace
}  // namespace sirtaki
