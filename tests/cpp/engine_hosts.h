#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/immediate.h"
#include "engines.h"
#include "switchboard.h"

// Worlds of several hosts in one process: a region for each host, socket pairs between them.
namespace sirtaki::testing {

/// Where ranks that are threads exchange data: replaces the transports between hosts.
class Meeting {
 public:
  explicit Meeting(int size) { sets_[0].members = size; }

  void add_set(int32_t set, int members) {
    const std::lock_guard lock(mutex_);
    sets_[set] = {};
    sets_[set].members = members;
  }

  /// Sums floats over the set's members.
  void sum(int32_t set, const Segments& in, const Segments& out, const Doorbell& doorbell) {
    std::unique_lock lock(mutex_);
    Set& s = sets_[set];
    const auto wait = [&](auto ready) {
      while (!ready()) {
        changed_.wait_for(lock, std::chrono::milliseconds(1));
        if (!ready()) doorbell.check_abort();
      }
    };
    wait([&] { return s.left == 0; });
    s.total.resize(in.bytes() / sizeof(float));
    each_float(in, [&](size_t i, float& value) { s.total[i] += value; });
    const uint64_t round = s.round;
    if (++s.arrived == s.members) {
      ++s.round;
      s.left = s.members;
      changed_.notify_all();
    }
    wait([&] { return s.round != round; });
    each_float(out, [&](size_t i, float& value) { value = s.total[i]; });
    if (--s.left > 0) return;
    s.arrived = 0;
    s.total.clear();
    changed_.notify_all();
  }

 private:
  struct Set {
    int members = 0;
    int arrived = 0;
    int left = 0;
    uint64_t round = 0;
    std::vector<float> total;
  };

  template <class Work>
  static void each_float(const Segments& segments, Work work) {
    size_t i = 0;
    for (const Segment& segment : segments.list()) {
      for (size_t at = 0; at < segment.bytes; at += sizeof(float)) {
        work(i++, *reinterpret_cast<float*>(segment.data + at));
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, Set> sets_;
};

/// Float sums and barriers among threads.
class MeetingBackend : public Backend {
 public:
  MeetingBackend(Meeting& meeting, Endpoint& endpoint) : meeting_(meeting), endpoint_(endpoint) {}

  const char* name() const override { return "meeting"; }
  WorkPtr start(const Op& op, const Streams& in, const Streams& out) override {
    return immediately(
        [this, &op, &in, &out] { meeting_.sum(op.set, in[0], out[0], endpoint_.doorbell); });
  }
  bool may_be_spared() const override { return true; }
  int track_of(int32_t) const override { return 0; }
  WorkPtr add_set(int32_t set, const std::vector<int>& ranks) override {
    return immediately([this, set, ranks] {
      meet_all();
      if (endpoint_.rank == ranks.front()) meeting_.add_set(set, static_cast<int>(ranks.size()));
      meet_all();
    });
  }
  WorkPtr remove_set(int32_t) override {
    return immediately([this] { meet_all(); });
  }

 private:
  void meet_all() { meeting_.sum(0, {}, {}, endpoint_.doorbell); }

  Meeting& meeting_;
  Endpoint& endpoint_;
};

inline std::pair<Fd, Fd> socket_pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    throw std::runtime_error("no socket pair");
  }
  return {Fd(fds[0]), Fd(fds[1])};
}

/// A rank's ends of its links, before it has them.
struct RankLinks {
  std::vector<Link> local;
  std::vector<Link> hosts;
};

/// What the ranks of a world on several hosts are started with.
class VirtualHosts {
 public:
  explicit VirtualHosts(std::vector<int> host_of, int fan_out = HostTree::kFanOut)
      : hosts(std::move(host_of), fan_out), meeting(hosts.size()), links(hosts_size()) {
    for (int host = 0; host < hosts.hosts(); ++host) {
      const std::vector<int>& local = hosts.ranks_on(host);
      regions.push_back(Region::anonymous(static_cast<int>(local.size())));
      for (const int rank : local) {
        if (rank != local.front()) connect(local.front(), rank, &RankLinks::local);
      }
      if (host == 0) continue;
      const int above = hosts.leader_of(hosts.tree().parent_of(host));
      connect(above, local.front(), &RankLinks::hosts);
    }
  }

  std::unique_ptr<Engine> start(int rank, const EngineOptions& options) {
    const auto make = [this](Endpoint& endpoint, const HostMap&, const MakeNetwork&) {
      return std::make_unique<MeetingBackend>(meeting, endpoint);
    };
    return start_with(make, rank, options, switchboard.of(rank));
  }

  /// On our own transports, with such connections.
  std::unique_ptr<Engine> start_native(int rank, const EngineOptions& options, Connect connect) {
    return start_with(Engine::make_native, rank, options, std::move(connect));
  }

  std::unique_ptr<Engine> start_with(const Engine::MakeBackend& make, int rank,
                                     EngineOptions options, Connect connect) {
    for (int r = 0; r < hosts.size(); ++r) {
      options.hosts.push_back("node" + std::to_string(hosts.host_of(r)));
    }
    const auto links = make_links(rank, std::move(connect));
    return std::make_unique<Engine>(rank, hosts, region_of(rank), Links::lend(links),
                                    links->network(), options, make);
  }

  /// What the rank has, which is no more ours.
  std::shared_ptr<Links> make_links(int rank, Connect connect = {}) {
    RankLinks& own = links_of(rank);
    return std::make_shared<Links>(rank, hosts, region_of(rank), std::move(own.local),
                                   channels_over(std::move(own.hosts)), std::move(connect));
  }

  /// As if the network between the host and the one above it were gone, with a reset.
  void cut(int host) { shutdown(spare_.at(host).get(), SHUT_RDWR); }

  /// Speaks as the leader `as`, which has no engine, to the other end of its first link.
  void speak(int as, const std::string& message, uint32_t generation = kFirstGeneration) {
    const Link& link = links_of(as).hosts.at(0);
    std::string stream;
    sealers_.try_emplace(as, link.keys.sending).first->second.append(stream, message, generation);
    if (::send(link.socket.get(), stream.data(), stream.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(stream.size())) {
      throw std::runtime_error("nothing said");
    }
  }

  /// As if somebody in the network put bytes into what rank 0 sends to the host.
  void inject(int host, const std::string& bytes) {
    if (::send(spare_.at(host).get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) {
      throw std::runtime_error("nothing injected");
    }
  }

  void abort_all(int rank) {
    switchboard.close();
    for (const auto& region : regions) Doorbell(region, 0, SpinPolicy{}).abort(rank);
  }

  const std::shared_ptr<Region>& region_of(int rank) {
    return regions[static_cast<size_t>(hosts.host_of(rank))];
  }
  RankLinks& links_of(int rank) { return links[static_cast<size_t>(rank)]; }

  HostMap hosts;
  std::vector<std::shared_ptr<Region>> regions;
  Meeting meeting;
  std::vector<RankLinks> links;
  Switchboard switchboard;

 private:
  size_t hosts_size() const { return static_cast<size_t>(hosts.size()); }

  void connect(int a, int b, std::vector<Link> RankLinks::* kind) {
    auto [left, right] = socket_pair();
    if (kind == &RankLinks::hosts) spare_[hosts.host_of(b)] = Fd(dup(left.get()));
    const SipKey to_b{std::byte{1}};
    const SipKey to_a{std::byte{2}};
    (links_of(a).*kind).push_back({b, std::move(left), {to_b, to_a}});
    (links_of(b).*kind).push_back({a, std::move(right), {to_a, to_b}});
  }

  std::map<int, Fd> spare_;
  std::map<int, FrameSealer> sealers_;
};

/// Runs `body(engine, rank)` for each rank; every engine shuts down after it. Where the hosts can
/// be linked in several ways, as a star and as a chain.
inline void run_hosts(const std::vector<int>& host_of, const EngineOptions& options,
                      const std::function<void(Engine&, int)>& body) {
  for (const int fan_out : {HostTree::kFanOut, 1}) {
    VirtualHosts world(host_of, fan_out);
    if (fan_out == 1 && world.hosts.hosts() < 3) return;
    run_threads(
        world.hosts.size(),
        [&](int r) {
          const auto engine = world.start(r, options);
          body(*engine, r);
        },
        [&](int r) { world.abort_all(r); });
  }
}

inline void run_hosts(const std::vector<int>& host_of,
                      const std::function<void(Engine&, int)>& body) {
  run_hosts(host_of, quick_options(), body);
}

}  // namespace sirtaki::testing
