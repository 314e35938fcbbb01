#pragma once

#include <sched.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/doorbell.h"
#include "transport/hosts.h"

namespace sirtaki {

/// Pieces of memory that one direction of a socket moves, first come first served.
class Pieces {
 public:
  void add(std::byte* data, size_t bytes);
  bool empty() const { return first_ == list_.size(); }
  iovec* begin() { return list_.data() + first_; }
  size_t count() const { return std::min(list_.size() - first_, kMost); }
  /// The first `bytes` have been moved.
  void advance(size_t bytes);

  uint64_t moved() const { return moved_; }

 private:
  static constexpr size_t kMost = 64;  // one call of the kernel takes no more

  std::vector<iovec> list_;
  size_t first_ = 0;
  uint64_t moved_ = 0;
};

/// One direction of a connection: its bytes are dealt out to the sockets, a stripe to each in turn.
class Flow {
 public:
  explicit Flow(size_t sockets) : pieces_(sockets) {}

  void add(std::byte* data, size_t bytes);
  Pieces& of(size_t socket) { return pieces_[socket]; }
  bool empty() const {
    return std::all_of(pieces_.begin(), pieces_.end(), [](auto& pieces) { return pieces.empty(); });
  }
  uint64_t added() const { return added_; }
  /// The first `until` bytes of all that were ever added have been moved.
  bool has_moved(uint64_t until) const;

 private:
  static constexpr size_t kStripe = 64 << 10;

  std::vector<Pieces> pieces_;
  uint64_t added_ = 0;
};

/// What both ends of a connection must agree on before an operation's bytes follow.
struct Greeting {
  uint8_t kind;
  uint8_t dtype;
  uint8_t reduce;
  uint8_t reserved;
  int32_t set;
  uint64_t bytes;
};

/// The connected sockets to a peer, and what waits to be moved over them.
struct Connection {
  Connection(int peer, std::vector<Fd> connected)
      : rank(peer), sockets(std::move(connected)), out(sockets.size()), in(sockets.size()) {}

  int rank;
  std::vector<Fd> sockets;
  Flow out;
  Flow in;
  bool busy = false;  ///< listed as one with something to move
  Greeting sent{};
  Greeting expected{};
  Greeting received{};
  uint64_t checked_at = 0;  ///< `received` is complete once so many bytes came in; 0: nothing to do
};

/// A position in one direction of a connection.
struct Mark {
  const Flow* flow;
  uint64_t until;
  bool reached() const { return flow->has_moved(until); }
};

/// The connections of one rank to ranks on other hosts.
///
/// Memory to send and to fill is only noted; it moves whenever this rank waits for anything, so all
/// directions are busy at once and no order of waiting can block two ranks for ever. Bytes carry no
/// tags: both ends name their pieces in the same order.
class Sockets {
 public:
  /// `per_peer` sockets make a connection, as many on all ranks: several carry more where one alone
  /// is held back by its window or by the core that serves it.
  Sockets(int rank, const Doorbell& doorbell, Connect connect, int per_peer)
      : rank_(rank), doorbell_(doorbell), connect_(std::move(connect)), per_peer_(per_peer) {}

  /// Connects to those of `ranks` that are not connected yet. Every rank must name its peers at the
  /// same operation; they are taken in ascending order, so that nobody waits in a circle.
  void open(std::vector<int> ranks);

  /// Begins an operation with a peer, in one direction: disagreement about it becomes an error.
  void greet(int rank, const Greeting& greeting);
  void expect(int rank, const Greeting& greeting);

  /// The memory must stay as it is until the mark is reached.
  Mark send(int rank, const std::byte* data, size_t bytes);
  Mark receive(int rank, std::byte* data, size_t bytes);

  /// Gives the kernel what it takes at once.
  void start();

  void await(const std::vector<Mark>& marks);
  void await(const Mark& mark);
  void await_all();

  /// Something waits to be moved.
  bool busy() const { return !busy_.empty(); }

  /// Moves bytes until `ready()`, which somebody else on this host makes true, or until nothing is
  /// left to move. Returns whether `ready()` is true.
  template <class Ready>
  bool move_until(Ready ready) {
    // Who makes it true cannot end poll(), but may need this core.
    constexpr int64_t kYieldNs = 100'000;
    constexpr int64_t kNapNs = 200'000;
    wait([&] { return !busy() || ready(); }, kYieldNs, kNapNs);
    return ready();
  }

  /// Forgets what was noted, after an error. Where the world has not ended because of it, closes
  /// the connections, which peers notice; else they stay open, so that no peer takes this rank for
  /// the lost one.
  void drop();

 private:
  static constexpr int64_t kSleepNs = 100'000'000;  // a missed abort is seen at the latest then
  static constexpr int64_t kPatienceNs = 4'000'000'000;
  static constexpr int64_t kLookAgainNs = 250'000'000;

  /// Polls, then offers its core to others between two looks, then sleeps until a socket is ready.
  template <class Ready>
  void wait(Ready ready, int64_t yield_ns, int64_t nap_ns) {
    int64_t limit = 0;
    int64_t look_at = 0;
    while (!ready()) {
      if (progress()) {
        limit = 0;
        continue;
      }
      if (doorbell_.aborted()) doorbell_.check_abort();
      const int64_t now = now_ns();
      if (limit == 0) {
        limit = now + doorbell_.spin_ns();
        look_at = now + kPatienceNs;
      }
      if (now >= look_at) {
        check_silence();
        look_at = now + kLookAgainNs;
      }
      if (now < limit) {
        cpu_relax();
      } else if (now < limit + yield_ns) {
        sched_yield();
      } else {
        sleep(nap_ns);
      }
    }
  }

  Connection& to(int rank) { return *connections_.at(rank); }
  void list(Connection& connection);
  bool progress();
  bool push(Connection& connection, size_t socket);
  bool pull(Connection& connection, size_t socket);
  void check_greeting(Connection& connection);
  void sleep(int64_t nap_ns);
  void check_silence();
  [[noreturn]] void lose(int rank, const std::string& reason);
  Fd connect_to(int rank, int lane);

  int rank_;
  const Doorbell& doorbell_;
  Connect connect_;
  int per_peer_;
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> busy_;
};

/// Drops the connections when an operation ends with an exception: what it noted is gone.
class DropOnError {
 public:
  explicit DropOnError(Sockets& sockets) : sockets_(sockets) {}
  ~DropOnError() {
    if (std::uncaught_exceptions() > exceptions_) sockets_.drop();
  }
  DropOnError(const DropOnError&) = delete;
  DropOnError& operator=(const DropOnError&) = delete;

 private:
  Sockets& sockets_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace sirtaki
