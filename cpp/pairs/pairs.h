#pragma once

#include <atomic>
#include <deque>
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
/// if that is shared or the kernel allows it, else in parts over the stream that everything uses.
/// Streams are always read, so no legal order of sends and receives can block two ranks for ever.
///
/// Only the driver calls it, except where noted.
class Pairs {
 public:
  class Listener {
   public:
    /// A transfer has ended, with the message of a receive or with an error.
    virtual void end(const std::shared_ptr<void>& owner, const Message& message,
                     const std::optional<Error>& error) = 0;
    /// Asks a rank of another host to call `meet` with this rank.
    virtual void invite(int rank) = 0;

   protected:
    ~Listener() = default;
  };

  /// `single_copy`: whether to read the memory of other processes.
  Pairs(Endpoint& endpoint, const HostMap& hosts, const MakeNetwork& make_network, bool single_copy,
        Listener& listener);
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;

  /// Begins a transfer, after those that were posted. Its ranks, tag and sizes must be valid.
  void add(Transfer transfer);
  /// The same from any thread: the driver, which the caller must ring, begins it.
  void post(Transfer transfer);
  /// Whether transfers were posted; from any thread.
  bool has_posted() const { return has_posted_.load(); }

  /// Does what needs no waiting; false if that was nothing. Throws errors that end the world.
  bool advance();
  /// Whether `advance` would make progress.
  bool is_ready() { return has_posted() || !pulls_.empty() || wires_.is_ready(); }
  /// Whether a transfer, here or at a peer, waits for a message, its receiver or unsent bytes.
  bool pending() const { return open_ > 0 || wires_.has_unsent(); }
  /// Whether bytes are in flight that only a driver moves.
  bool busy() const { return !pulls_.empty() || wires_.busy(); }
  void check_patience() { wires_.check_patience(); }
  /// A transfer whose peer has made no progress for this long, if any. Call it from time to time. A
  /// rank of this host makes progress while its process runs, whatever that does; with one of
  /// another host, a message must be in progress, and a byte of it must have moved.
  struct Stuck {
    std::string transfer;
    Awaited awaited;
  };
  std::optional<Stuck> find_stuck(int64_t now_ns, int64_t limit_ns);
  /// Adds the events that transfers wait for.
  void prepare(Sleep& sleep) {
    if (pending()) wires_.prepare(sleep);
  }
  /// Whether a peer has sent something; from any thread.
  bool has_news() const { return wires_.has_news(); }

  /// The rank of another host wants to connect.
  void meet(int rank) { wires_.meet(rank); }

  /// Forgets a process set, whose number another one will get. Every rank does, so that messages of
  /// the old set that arrive later are recognised.
  void forget(int32_t set);
  /// The world has ended in good order: everything that waits fails, and later sends do, too.
  /// Messages that have arrived can still be received.
  void end(const Error& error);
  /// The world is lost: everything fails at once, and nothing can be received.
  void drop(const Error& error);
  /// Stops connecting; the last call.
  void stop() {
    lost_ = true;
    wires_.stop();
  }

  /// An unfinished transfer of this owner (null: of any); null: there is none.
  const Transfer* pending_of(const void* owner) const;
  /// Messages that nobody received.
  std::vector<std::unique_ptr<Arrived>> leftovers() { return matching_.drop_arrived(); }

 private:
  friend class Wires;

  // pairs.cpp: requests of callers
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

  // pairs_receive.cpp: frames of peers
  bool has_room(Transfer& receive, int source, uint64_t bytes);
  void deliver(Transfer& receive, const Message& message, const std::byte* from);
  std::span<std::byte> begin(Peer& peer, const Header& header);
  std::span<std::byte> begin_eager(Peer& peer, const Header& header);
  std::span<std::byte> begin_part(Peer& peer, const Header& header);
  void end(Peer& peer, const Header& header);
  void end_eager(Peer& peer, const Header& header);
  void end_part(Peer& peer, const Header& header);
  void give_back(int rank, uint64_t bytes);

  // pairs_offers.cpp: offers
  void take_offer(Peer& peer, const Header& header);
  void take_answer(Peer& peer, const Header& header);
  void feed(Peer& peer);
  void sent(const std::shared_ptr<void>& owner);
  void fetch(std::unique_ptr<Transfer> receive, Arrived offer);
  void ask(std::unique_ptr<Incoming> incoming);
  bool advance_pulls();
  bool pull(Incoming& incoming);

  Endpoint& endpoint_;
  Listener& listener_;
  Wires wires_;
  std::optional<SingleCopy> single_copy_;
  Communicators communicators_;
  Matching matching_;
  std::vector<std::unique_ptr<Incoming>> pulls_;
  uint64_t next_key_ = 1;
  int64_t open_ = 0;  ///< unfinished transfers
  std::optional<Error> ended_;
  bool lost_ = false;

  std::mutex posted_mutex_;
  std::vector<Transfer> posted_;
  std::atomic<bool> has_posted_{false};
  std::deque<Transfer> taken_;  ///< posted and about to begin; if one throws, `drop` fails the rest
};

}  // namespace sirtaki
