#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/awaited.h"
#include "pairs/matching.h"
#include "pairs/message.h"
#include "pairs/single_copy.h"
#include "pairs/wires.h"

namespace sirtaki {

/// Messages from one rank to another, beside the sequencer.
///
/// Small messages go at once and wait at the receiver until they are wanted. Large ones are
/// offered, and move when they are wanted: on one host by a single copy out of the sender's memory
/// where that is shared or the kernel allows it, else in parts over the same stream as everything
/// else. Streams are always read, so no order of sends and receives that is legal can block two
/// ranks for ever.
///
/// Only the driver calls it, except where it says otherwise.
class Pairs {
 public:
  struct Events {
    /// A transfer is over; of a receive the message, or what it failed with.
    std::function<void(const std::shared_ptr<void>& owner, const Message& message,
                       const std::optional<Error>& error)>
        done;
    /// A rank of another host is to call `meet` with this rank.
    std::function<void(int rank)> invite;
  };

  /// `single_copy`: whether to read the memory of other processes at all.
  Pairs(Endpoint& endpoint, const HostMap& hosts, const MakeNetwork& make_network, bool single_copy,
        Events events);
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;

  /// Begins a transfer, behind what was posted. Its ranks, tag and sizes must be right.
  void add(Transfer transfer);
  /// The same from any thread: the driver, once it is rung, begins it.
  void post(Transfer transfer);
  /// Something was posted; from any thread.
  bool has_posted() const { return has_posted_.load(); }

  /// Does what can be done without waiting; false if that was nothing. Throws what ends the world.
  bool advance();
  /// Whether `advance` would get something further.
  bool is_ready();
  /// Somebody waits for a message, or for one to be taken; or a peer waits for what was not sent.
  bool pending() const { return open_ > 0 || wires_.has_unsent(); }
  /// Bytes are under way that only a driver moves.
  bool busy() const { return !pulls_.empty() || wires_.busy(); }
  void check_patience() { wires_.check_patience(); }
  /// A transfer that waits for a peer which did not stir for so long; none: there is none. Asked
  /// now and then. A rank of this host stirs as long as its process runs, whatever that does; with
  /// one of another host something must be under way, of which a byte must have moved.
  struct Stuck {
    std::string transfer;
    Awaited awaited;
  };
  std::optional<Stuck> find_stuck(int64_t now_ns, int64_t limit_ns);
  /// Adds what is waited for.
  void prepare(Sleep& sleep) {
    if (pending()) wires_.prepare(sleep);
  }
  /// A peer has said something; from any thread.
  bool has_news() const { return wires_.has_news(); }

  /// The rank of another host wants to connect.
  void meet(int rank) { wires_.meet(rank); }

  /// Forgets what concerns a process set: its number will be another one's. Every rank does, so
  /// what was sent in it and comes later is known for what it is.
  void forget(int32_t set);
  /// The world is over in good order: everything that waits fails, and later sends too. Messages
  /// that have come can still be received.
  void end(const Error& error);
  /// The world is lost: the same at once, and nothing can be received.
  void drop(const Error& error);
  /// Gives up connecting; the last thing.
  void stop() {
    lost_ = true;
    wires_.stop();
  }

  /// A transfer of this owner (null: of any) that is not over; null: there is none.
  const Transfer* pending_of(const void* owner) const;
  /// Messages that nobody received.
  std::vector<std::unique_ptr<Arrived>> leftovers() { return matching_.drop_arrived(); }

 private:
  friend class Wires;

  // pairs.cpp: what the callers want
  void start(Transfer& transfer);
  void start_send(Transfer& send);
  void send_to_self(const Transfer& send);
  void start_receive(Transfer& receive);
  bool take_posted();
  void finish(const Transfer& transfer, const Message& message = {},
              const std::optional<Error>& error = std::nullopt);
  void fail_all(const Error& error);
  template <class Fits>
  const Transfer* find_open(Fits fits) const;

  // pairs_receive.cpp: what the peers say
  bool has_room(Transfer& receive, int source, uint64_t bytes);
  void deliver(Transfer& receive, const Message& message, const std::byte* from);
  std::span<std::byte> begin(Peer& peer, const Header& header);
  std::span<std::byte> begin_eager(Peer& peer, const Header& header);
  std::span<std::byte> begin_part(Peer& peer, const Header& header);
  void end(Peer& peer, const Header& header);
  void end_eager(Peer& peer, const Header& header);
  void end_part(Peer& peer, const Header& header);
  void give_back(int rank, uint64_t bytes);

  // pairs_offers.cpp: what is offered
  void take_offer(Peer& peer, const Header& header);
  void take_answer(Peer& peer, const Header& header);
  void feed(Peer& peer);
  void sent(const std::shared_ptr<void>& owner);
  void fetch(std::unique_ptr<Transfer> receive, Arrived offer);
  void ask(std::unique_ptr<Incoming> incoming);
  bool advance_pulls();
  bool pull(Incoming& incoming);

  Endpoint& endpoint_;
  const Events events_;
  Wires wires_;
  std::optional<SingleCopy> single_copy_;
  Communicators communicators_;
  Matching matching_;
  std::vector<std::unique_ptr<Incoming>> pulls_;
  uint64_t next_key_ = 1;
  int64_t open_ = 0;  ///< transfers that are not over
  std::optional<Error> ended_;
  bool lost_ = false;

  std::mutex posted_mutex_;
  std::vector<Transfer> posted_;
  std::atomic<bool> has_posted_{false};
  std::deque<Transfer> taken_;  ///< was posted, begins next; if one throws, `drop` fails the rest
};

}  // namespace sirtaki
