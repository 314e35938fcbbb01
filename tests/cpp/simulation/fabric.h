#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "transport/channel.h"
#include "transport/hosts.h"

// A network in one process: bytes between ranks of different hosts, delayed by a virtual clock.
namespace sirtaki::testing {

/// Bytes on their way; none: an acknowledgement.
struct Frame {
  int from;
  int to;
  size_t bytes;
};

/// What becomes of a frame.
struct Fate {
  enum Kind { kPass, kDelay, kDrop, kCut } kind = kPass;
  int64_t delay_ns = 0;
};

/// Asked for each frame; none: the next rule decides.
using Rule = std::function<std::optional<Fate>(const Frame&)>;

/// One direction of a connection. Nothing overtakes; what was dropped is sent again, as TCP does.
struct Pipe {
  struct Parcel {
    std::vector<std::byte> bytes;
    int64_t sent_ns;     ///< for the first time
    int64_t arrives_ns;  ///< or is tried again, if it was dropped
    bool dropped;
  };

  int from;
  int to;
  std::deque<Parcel> on_way{};
  std::vector<std::byte> arrived{};
  size_t filled = 0;       ///< bytes on their way or not taken yet
  int64_t unheard_ns = 0;  ///< since when something has not been acknowledged; 0: nothing
  bool closed = false;     ///< by the sender, behind what it sent
};

/// Two ranks' ends.
struct Connection : std::enable_shared_from_this<Connection> {
  Connection(int a, int b) : pipes{{a, b}, {b, a}} {}

  Pipe pipes[2];
  std::string broken{};  ///< why nothing moves any more

  Pipe& from(int rank) { return pipes[pipes[0].from == rank ? 0 : 1]; }
  Pipe& to(int rank) { return pipes[pipes[0].to == rank ? 0 : 1]; }
};

class Fabric {
 public:
  static constexpr size_t kWindow = 256 << 10;

  Fabric(HostMap hosts, uint64_t seed) : hosts_(std::move(hosts)), random_(seed) {}

  /// Until the guard goes.
  using Guard = std::shared_ptr<const void>;
  Guard add(Rule rule);

  int64_t now_ns() const { return now_ns_; }
  void set_time(int64_t now_ns) { now_ns_ = now_ns; }
  /// When something arrives next, or is tried again; kForever: nothing is on its way.
  int64_t next_ns() const;
  /// Delivers what arrives by now; `wakes` is told which ranks have something to do.
  void deliver(const std::function<void(int rank)>& wakes);

  /// Both ends ask, in any order; the connection is there some time after the second.
  void ask(int rank, int peer, int number);
  /// Those that have been made since; a dead peer's is broken.
  std::vector<std::shared_ptr<Connection>> made(int rank, int first_number, int numbers);
  void forget(int rank, int first_number);
  /// At once.
  std::shared_ptr<Connection> connect(int a, int b);

  /// How many bytes were taken.
  size_t send(Connection& connection, int from, std::span<const std::byte> bytes);
  size_t take(Connection& connection, int to, std::span<std::byte> room);
  void close(Connection& connection, int from);
  /// Its kernel closes what the process had.
  void kill(int rank);

  uint64_t frames() const { return frames_; }
  uint64_t dropped() const { return dropped_; }

 private:
  using Key = std::tuple<int, int, int>;  ///< ranks, in order, and number
  struct Asked {
    std::set<int> by{};
    int64_t ready_ns = kForever;
    int64_t late_ns = kForever;
    bool told = false;  ///< those who asked know that it is time
    std::shared_ptr<Connection> connection{};
  };

  Fate fate_of(const Frame& frame);
  void dispatch(Connection& connection, Pipe& pipe, Pipe::Parcel& parcel);
  void arrive(Connection& connection, Pipe& pipe, const std::function<void(int)>& wakes);
  int64_t latency();

  const HostMap hosts_;
  std::mt19937_64 random_;
  int64_t now_ns_ = 1'000'000'000;
  std::list<std::pair<std::weak_ptr<const void>, Rule>> rules_;
  std::vector<std::weak_ptr<Connection>> connections_;
  std::multimap<int64_t, std::weak_ptr<Connection>> due_;  ///< when something arrives
  std::map<Key, Asked> asked_;
  std::set<int> dead_;
  std::vector<int> news_;  ///< ranks to be woken
  uint64_t frames_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace sirtaki::testing
