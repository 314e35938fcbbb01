#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/task.h"
#include "transport/hosts.h"
#include "transport/memory/doorbell.h"
#include "transport/network/opener.h"
#include "transport/network/silence.h"

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
  const Pieces& of(size_t socket) const { return pieces_[socket]; }
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

/// As it travels: whatever comes without its tag is not looked at.
struct SealedGreeting {
  Greeting greeting;
  SipTag tag;
};
static_assert(sizeof(SealedGreeting) == sizeof(Greeting) + sizeof(SipTag));

/// The connected sockets to a peer, and what waits to be moved over them.
struct Connection {
  Connection(int peer, std::vector<DataSocket> connected)
      : rank(peer),
        out_tags(connected.front().keys.sending),
        in_tags(connected.front().keys.receiving),
        out(connected.size()),
        in(connected.size()) {
    for (DataSocket& one : connected) sockets.push_back(std::move(one.socket));
  }

  int rank;
  Tags out_tags;
  Tags in_tags;
  std::vector<Fd> sockets;
  Flow out;
  Flow in;
  bool busy = false;  ///< listed as one with something to move
  SealedGreeting sent{};
  Greeting expected{};
  SealedGreeting received{};
  uint64_t checked_at = 0;  ///< `received` is complete once so many bytes came in; 0: nothing to do
};

/// A position in one direction of a connection.
struct Mark {
  const Flow* flow;
  uint64_t until;
  bool reached() const { return flow->has_moved(until); }
};

/// The connections of one rank's process set to ranks on other hosts.
///
/// Memory to send and to fill is only noted; it moves whenever `progress` is called, so all
/// directions are busy at once and no order of waiting can block two ranks for ever. Bytes carry no
/// tags: both ends name their pieces in the same order.
class Sockets {
  struct Reached {
    const Sockets* sockets;
    Mark mark;
    uint32_t chunk;
    bool operator()() const { return mark.reached(); }
    Awaited awaited() const { return sockets->awaited(mark, chunk); }
  };
  struct AllReached {
    const Sockets* sockets;
    const std::vector<Mark>* marks;
    uint32_t chunk;
    bool operator()() const { return behind() == marks->end(); }
    Awaited awaited() const {
      const auto first = behind();
      return first == marks->end() ? Awaited{} : sockets->awaited(*first, chunk);
    }
    std::vector<Mark>::const_iterator behind() const {
      return std::find_if(marks->begin(), marks->end(), [](const Mark& m) { return !m.reached(); });
    }
  };
  struct Idle {
    const Sockets* sockets;
    bool operator()() const { return !sockets->busy(); }
    Awaited awaited() const { return sockets->awaited(); }
  };

 public:
  /// `per_peer` sockets make a connection, as many on all ranks: several carry more where one alone
  /// is held back by its window or by the core that serves it. They are lanes `first_lane` and up.
  /// `silent_ns`: see is_silent.
  Sockets(int rank, const Doorbell& doorbell, Connect connect, int first_lane, int per_peer,
          int64_t silent_ns = static_cast<int64_t>(kSilentSeconds * 1e9))
      : rank_(rank),
        doorbell_(doorbell),
        connect_(std::move(connect)),
        first_lane_(first_lane),
        per_peer_(per_peer),
        silent_ns_(silent_ns) {}

  /// Awaited, connects to those of `ranks` that are not connected yet. Every rank must name its
  /// peers at the same operation.
  Task open(std::vector<int> ranks);

  /// Begins an operation with a peer, in one direction: disagreement about it becomes an error.
  void greet(int rank, const Greeting& greeting);
  void expect(int rank, const Greeting& greeting);

  /// The memory must stay as it is until the mark is reached.
  Mark send(int rank, const std::byte* data, size_t bytes);
  Mark receive(int rank, std::byte* data, size_t bytes);

  /// Gives the kernel what it takes at once.
  void start();

  /// Awaited: the mark is reached, which is of the operation's chunk with that number.
  auto reached(Mark mark, uint32_t chunk) const { return Until<Reached>({this, mark, chunk}); }
  /// Awaited: all marks are reached; the list stays where it is meanwhile.
  auto all_reached(const std::vector<Mark>& marks, uint32_t chunk) const {
    return Until<AllReached>({this, &marks, chunk});
  }
  /// Awaited: nothing waits to be moved.
  auto idle() const { return Until<Idle>({this}); }

  /// Something waits to be moved.
  bool busy() const { return !busy_.empty(); }
  /// Moves what can be moved now; false if that was nothing.
  bool progress();
  /// Adds what becomes ready once more can be moved.
  void prepare(Sleep& sleep) const;

  /// Forgets what was noted, after an error. Where the world has not ended because of it, closes
  /// the connections, which peers notice; else they stay open, so that no peer takes this rank for
  /// the lost one.
  void drop();

 private:
  static constexpr int64_t kLookAgainNs = 250'000'000;

  /// What `reached` and `idle` wait for, as long as they do.
  Awaited awaited(const Mark& mark, uint32_t chunk) const;
  Awaited awaited() const;
  Connection& to(int rank) { return *connections_.at(rank); }
  void list(Connection& connection);
  bool push(Connection& connection, size_t socket);
  bool pull(Connection& connection, size_t socket);
  void check_greeting(Connection& connection);
  void check_patience();
  void check_silence();
  void lose(int rank, const std::string& reason);
  void settle();
  void require_open(const Opener& opener) const;

  int rank_;
  const Doorbell& doorbell_;
  Connect connect_;
  int first_lane_;
  int per_peer_;
  int64_t silent_ns_;
  std::unique_ptr<Opener> opener_;  ///< while connections are being opened
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> busy_;
  Loss broken_{-1};         ///< the first connection that broke; its rank is negative: none has
  int64_t settled_ns_ = 0;  ///< until when others may say that the world ended for another reason
  int64_t look_at_ns_ = 0;  ///< when to ask whether the other hosts answer; 0: something has moved
};

}  // namespace sirtaki
