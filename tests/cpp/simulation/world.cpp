#include "simulation/world.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace sirtaki::testing {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kRenewalLookNs = 20'000'000;  // its sockets wake nobody here
constexpr int kNumbersOfEngine = 1 << 16;

EngineOptions options_of(const HostMap& hosts) {
  EngineOptions options;
  options.own_threads = false;
  options.caller_spin_ns = options.engine_spin_ns = 0;
  options.chunk_bytes = 16 << 10;
  options.autotune.chunk_fixed = true;
  options.log_level = LogLevel::kFatal;
  for (int rank = 0; rank < hosts.size(); ++rank) {
    options.hosts.push_back("node" + std::to_string(hosts.host_of(rank)));
  }
  return options;
}

}  // namespace

World::World(std::vector<int> host_of, int fan_out, uint64_t seed)
    : hosts_(std::move(host_of), fan_out), random_(seed), fabric_(hosts_, seed + 1) {
  machine::simulation.store(this);
  processes_.resize(static_cast<size_t>(hosts_.size()));
  make_links();
}

World::~World() {
  processes_.clear();
  machine::simulation.store(nullptr);
}

void World::make_links() {
  const auto size = static_cast<size_t>(hosts_.size());
  std::vector<std::vector<Link>> local(size);
  std::vector<std::vector<std::unique_ptr<Channel>>> between(size);
  const auto index = [](int rank) { return static_cast<size_t>(rank); };
  for (int host = 0; host < hosts_.hosts(); ++host) {
    const std::vector<int>& ranks = hosts_.ranks_on(host);
    const int leader = ranks.front();
    regions_.push_back(Region::anonymous(static_cast<int>(ranks.size())));
    for (const int rank : ranks) {
      if (rank == leader) continue;
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        throw Violation("no socket pair");
      }
      local[index(leader)].push_back({rank, Fd(pair[0])});
      local[index(rank)].push_back({leader, Fd(pair[1])});
    }
    if (host == 0) continue;
    const int above = hosts_.leader_of(hosts_.tree().parent_of(host));
    const auto connection = fabric_.connect(above, leader);
    const auto end_of = [&](int self, int peer) {
      return std::make_unique<SimulatedChannel>(fabric_, connection, self, peer);
    };
    between[index(above)].push_back(end_of(above, leader));
    between[index(leader)].push_back(end_of(leader, above));
  }
  for (int rank = 0; rank < hosts_.size(); ++rank) {
    const auto& region = regions_[index(hosts_.host_of(rank))];
    process(rank).links =
        std::make_shared<Links>(rank, hosts_, region, std::move(local[index(rank)]),
                                std::move(between[index(rank)]), Connect{});
    RankBlock& block = region->rank(hosts_.place_of(rank));
    words_[&block.engine] = words_[&block.caller] = rank;
  }
}

// ---- Who runs ----

void World::wake_rank(int rank) {
  process(rank).runnable = true;
  for (SimulatedNetwork* network : process(rank).networks) network->tell();
}

/// A word is the second one of its Parking.
void World::wake(const void* word) {
  const auto found = words_.upper_bound(word);
  if (found == words_.begin()) return;
  const auto [parking, rank] = *std::prev(found);
  const auto* const begin = static_cast<const std::byte*>(parking);
  if (static_cast<const std::byte*>(word) < begin + sizeof(Parking)) {
    process(rank).runnable = true;
  }
}

void World::ring(int) { process(hosts_.leader_of(hosts_.host_of(running_))).runnable = true; }

bool World::may_run(const Process& process) const {
  return process.lives && process.runnable && process.stopped_until <= fabric_.now_ns();
}

int64_t World::next_ns() const {
  int64_t next = fabric_.next_ns();
  if (!events_.empty()) next = std::min(next, events_.begin()->first);
  for (const Process& process : processes_) {
    if (!process.lives) continue;
    next = std::min(next, std::max(process.runnable ? 0 : process.wakes_ns, process.stopped_until));
  }
  return next;
}

bool World::run(const std::function<void(int)>& runs, const std::function<bool()>& done,
                int64_t limit_ns) {
  std::vector<int> ready;
  while (!done()) {
    if (now_ns() > limit_ns) return false;
    while (!events_.empty() && events_.begin()->first <= now_ns()) {
      const auto what = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      what();
    }
    if (fabric_.next_ns() <= now_ns()) fabric_.deliver([this](int rank) { wake_rank(rank); });
    ready.clear();
    for (int rank = 0; rank < size(); ++rank) {
      Process& one = process(rank);
      one.looks = !one.runnable && one.wakes_ns <= now_ns();
      one.runnable |= one.looks;
      if (may_run(one)) ready.push_back(rank);
    }
    if (ready.empty()) {
      fabric_.set_time(std::max(now_ns() + 1, std::min(next_ns(), limit_ns + 1)));
      continue;
    }
    step(ready[random_() % ready.size()], runs);
  }
  return true;
}

void World::step(int rank, const std::function<void(int)>& runs) {
  ++steps_;
  running_ = rank;
  Process& one = process(rank);
  one.runnable = false;
  one.wakes_ns = kForever;
  runs(rank);
  if (one.engine != nullptr && one.lives) {
    // Nobody has woken it; a leader's relay has times of its own.
    const bool relays = hosts_.hosts() > 1 && hosts_.place_of(rank) == 0;
    const bool looks = one.looks && !one.runnable && !relays;
    const uint64_t moves = one.engine->moves();
    const int64_t before = now_ns();
    one.wakes_ns = one.engine->step(before);
    one.runnable |= one.wakes_ns <= before;
    if (looks && one.engine->moves() != moves) {
      throw Violation("rank " + std::to_string(rank) + " went on only because it looked by itself");
    }
    runs(rank);
  }
  const int leader = hosts_.leader_of(hosts_.host_of(rank));
  if (hosts_.hosts() > 1) process(leader).runnable |= leader != rank;
  nap(500 + static_cast<int64_t>(random_() % 5'000));
}

// ---- Engines ----

std::unique_ptr<Network> World::make_network(int rank, const NetworkUse& use) {
  const auto generation = static_cast<int>(process(rank).links->generation());
  auto network = std::make_unique<SimulatedNetwork>(
      fabric_, rank, use, use.first_number + generation * kNumbersOfEngine);
  process(rank).networks.push_back(network.get());
  return network;
}

void World::begin() {
  for (int rank = 0; rank < size(); ++rank) {
    Process& one = process(rank);
    if (!one.lives) continue;
    one.runnable = true;
    one.engine = std::make_unique<Engine>(
        rank, hosts_, one.links->region(), Links::lend(one.links),
        [this, rank](const Doorbell&, const NetworkUse& use) { return make_network(rank, use); },
        options_of(hosts_));
  }
}

bool World::renew() {
  std::map<int, std::unique_ptr<Renewal>> renewals;
  std::map<int, Renewal::State> states;
  const auto decided = [&] {
    return std::ranges::all_of(states, [this](const auto& entry) {
      return !lives(entry.first) || entry.second != Renewal::State::kWaiting;
    });
  };
  for (int rank = 0; rank < size(); ++rank) {
    if (!lives(rank)) continue;
    renewals[rank] = std::make_unique<Renewal>(*process(rank).links, 30);
    states[rank] = Renewal::State::kWaiting;
    process(rank).runnable = true;
  }
  const auto runs = [&](int rank) {
    if (states[rank] == Renewal::State::kWaiting) states[rank] = renewals[rank]->advance(now_ns());
    process(rank).wakes_ns = now_ns() + kRenewalLookNs;
  };
  if (!run(runs, decided, now_ns() + 60 * kSecond)) throw Violation("a renewal has no end");
  size_t agreed = 0;
  size_t living = 0;
  for (const auto& [rank, state] : states) {
    living += lives(rank) ? 1 : 0;
    agreed += lives(rank) && state == Renewal::State::kAgreed ? 1 : 0;
  }
  return agreed == living && living == static_cast<size_t>(size());
}

void World::end() {
  for (int rank = 0; rank < size(); ++rank) {
    Process& one = process(rank);
    if (one.engine == nullptr) continue;
    running_ = rank;
    if (!one.engine->left()) one.engine->abort("the simulation is over");
    one.networks.clear();
  }
  const auto steps = [](const Process& one) {
    return one.engine != nullptr && !one.engine->left();
  };
  for (int round = 0; round < 10 && std::ranges::any_of(processes_, steps); ++round) {
    for (Process& one : processes_) {
      if (one.engine != nullptr) one.engine->step(now_ns());
    }
  }
  for (Process& one : processes_) one.engine.reset();
}

std::optional<Loss> World::loss(int rank) const {
  const Region& region = *regions_[static_cast<size_t>(hosts_.host_of(rank))];
  if (region.lost_rank() < 0) return std::nullopt;
  return region.loss();
}

// ---- Faults ----

void World::kill(int rank) {
  if (!lives(rank)) return;
  trace("rank " + std::to_string(rank) + " is killed");
  process(rank).lives = false;
  process(rank).links->close();
  fabric_.kill(rank);
  process(hosts_.leader_of(hosts_.host_of(rank))).runnable = true;
  for (const int other : hosts_.ranks_on(hosts_.host_of(rank))) process(other).runnable = true;
}

void World::lose_host(int host) {
  trace("host " + std::to_string(host) + " loses its power");
  for (const int rank : hosts_.ranks_on(host)) process(rank).lives = false;
  guards_.push_back(fabric_.add([this, host](const Frame& frame) -> std::optional<Fate> {
    if (hosts_.host_of(frame.from) != host && hosts_.host_of(frame.to) != host) return {};
    return Fate{Fate::kDrop};
  }));
}

void World::stop(int rank, int64_t ns) {
  trace("rank " + std::to_string(rank) + " is stopped for " + std::to_string(ns / 1'000'000) +
        " ms");
  process(rank).stopped_until = now_ns() + ns;
}

// ---- What happened ----

void World::trace(const std::string& what) {
  char time[32];
  std::snprintf(time, sizeof time, "%.6f s: ", static_cast<double>(now_ns()) * 1e-9);
  history_.push_back(time + what);
}

std::string World::history() const {
  constexpr size_t kMost = 120;
  std::string text;
  for (size_t i = history_.size() - std::min(kMost, history_.size()); i < history_.size(); ++i) {
    text += history_[i] + "\n";
  }
  return text;
}

}  // namespace sirtaki::testing
