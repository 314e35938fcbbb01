#include <malloc.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/control/host_aggregator.h"
#include "engine/execution/negotiation.h"
#include "engine/requests/messages.h"
#include "engine/sequencer/sequencer.h"

// What agreeing on an operation costs in a world of many ranks, whose messages are played; prints
// one line of JSON for a world.
namespace sirtaki {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

size_t allocated() { return mallinfo2().uordblks; }

std::vector<int> spread(int hosts, int per_host) {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * per_host; ++rank) host_of.push_back(rank / per_host);
  return host_of;
}

std::string asked(const Request& request) {
  std::string message;
  Writer out(message);
  out.put(Up::kRequest);
  request.encode(out);
  return message;
}

/// What the sequencer hears of one operation: those of rank 0's host one by one, the others merged
/// by the leaders below it.
class World {
 public:
  World(int hosts, int per_host)
      : map_(spread(hosts, per_host)),
        sequencer_(map_, {},
                   [this](const Recipients&, std::string_view message) { sent_ = message; }) {
    for (int rank = 0; rank < per_host; ++rank) reporters_.push_back({{rank}, {}});
    for (const HostRange& below : map_.tree().children_of(0)) reporters_.push_back({{}, {below}});
    for (int rank = 0; rank < map_.size(); ++rank) single_.push_back({{rank}, {}});
  }

  /// Seconds of processor time for an operation that all ranks report in a message each, or in as
  /// few as may be.
  double run(const std::string& message, int times, bool merged) {
    const std::vector<Reporters>& reporters = merged ? reporters_ : single_;
    const double begin = cpu_seconds();
    for (int i = 0; i < times; ++i) {
      for (const Reporters& from : reporters) sequencer_.receive(from, message, 0);
      sequencer_.dispatch(0);
    }
    return (cpu_seconds() - begin) / times;
  }

  /// The short id of a request that has been told in full.
  uint32_t last_id() const {
    Reader in(sent_);
    in.get<Down>();
    in.get<uint32_t>();
    in.get<bool>();
    return in.get<uint32_t>();
  }
  size_t last_bytes() const { return sent_.size(); }
  int size() const { return map_.size(); }
  size_t messages() const { return reporters_.size(); }

 private:
  const HostMap map_;
  Sequencer sequencer_;
  std::vector<Reporters> reporters_;
  std::vector<Reporters> single_;
  std::string sent_;
};

struct Cached {
  double merged;
  double single;
};

Cached time_cached(World& world, const std::string& name) {
  Request request;
  request.kind = Kind::kAllreduce;
  request.dtype = Dtype::kF32;
  request.name = name;
  request.shapes = {{1000}};
  world.run(asked(request), 1, true);
  std::string ready;
  Writer(ready).put(Up::kReady).put(world.last_id());
  world.run(ready, 100, true);
  const double merged = world.run(ready, 2000, true);
  return {merged, world.run(ready, 200'000 / world.size() + 1, false)};
}

/// Bytes from and to all ranks for an alltoall that is new.
size_t alltoall_bytes(World& world) {
  Request request;
  request.kind = Kind::kAlltoall;
  request.name = "exchange";
  request.shapes = {{world.size(), 4}};
  request.splits.assign(static_cast<size_t>(world.size()), 1);
  const std::string message = asked(request);
  world.run(message, 1, true);
  return static_cast<size_t>(world.size()) * (message.size() + world.last_bytes());
}

/// Ignores every message.
struct NullListener final : Negotiation::Listener {
  void receive_batch(std::vector<Item> /*items*/) override {}
  void receive_refusal(const Entry& /*entry*/, const Error& /*error*/) override {}
  void receive_flush(std::string_view /*answer*/) override {}
  void receive_tune(int64_t /*chunk_bytes*/) override {}
  void receive_meet(int /*rank*/) override {}
  void receive_shutdown(int /*rank*/) override {}
  void receive_states(Reader& /*states*/) override {}
};

/// Bytes that the control plane of one rank allocates with an operation under way: of rank 0, of
/// the leader just below it, of another rank.
struct Memory {
  size_t sequencer;
  size_t leader;
  size_t rank;
};

Memory measure_memory(int hosts, int per_host) {
  Memory memory{};
  const size_t before = allocated();
  const HostMap map(spread(hosts, per_host));
  const ProcessSets sets(map.size());
  NullListener listener;
  const Negotiation negotiation(0, sets, listener);
  memory.rank = allocated() - before;
  Sequencer sequencer(map, {}, [](const Recipients&, std::string_view) {});
  Request request;
  request.name = "";
  request.shapes = {{1000}};
  const std::string message = asked(request);
  for (int rank = 1; rank < map.size(); ++rank) sequencer.receive(rank, message, 0);
  memory.sequencer = allocated() - before;
  const HostRange below = hosts > 1 ? map.tree().children_of(0).back() : HostRange{0, 1};
  const size_t then = allocated();
  HostAggregator aggregator(map, below);
  const int first = map.leader_of(below.begin);
  aggregator.receive_up(first, message, 0);
  memory.leader = memory.rank + allocated() - then;
  return memory;
}

void measure(int hosts, int per_host) {
  World world(hosts, per_host);
  const Cached named = time_cached(world, "grad");
  const Cached unnamed = time_cached(world, "");
  const size_t bytes = alltoall_bytes(world);
  const Memory memory = measure_memory(hosts, per_host);
  std::printf(
      "{\"hosts\": %d, \"ranks\": %d, \"messages\": %zu, \"cached_seconds\": %.9f, "
      "\"unnamed_seconds\": %.9f, \"one_by_one_seconds\": %.9f, \"alltoall_bytes\": %zu, "
      "\"sequencer_bytes\": %zu, \"leader_bytes\": %zu, \"rank_bytes\": %zu}\n",
      hosts, world.size(), world.messages(), named.merged, unnamed.merged, named.single, bytes,
      memory.sequencer, memory.leader, memory.rank);
}

}  // namespace
}  // namespace sirtaki

int main(int count, char** arguments) {
  if (count != 3) return 2;
  sirtaki::measure(std::atoi(arguments[1]), std::atoi(arguments[2]));
  return 0;
}
