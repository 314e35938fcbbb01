#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/awaited.h"
#include "pairs/matching.h"
#include "pairs/message.h"
#include "pairs/single_copy.h"
#include "pairs/wire.h"
#include "transport/channels.h"
#include "transport/group.h"

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
  ~Pairs();
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
  bool pending() const { return open_ > 0 || unsent_ > 0; }
  /// Bytes are under way that only a driver moves.
  bool busy() const {
    return !pulls_.empty() || streaming_ || has_more() || (connected_ && channels_->losing());
  }
  /// Names who is lost: see Channels.
  void check_patience() {
    if (connected_ && !ended_) channels_->check_patience();
  }
  /// A transfer that waits for a peer which did not stir for so long; none: there is none. Asked
  /// now and then. A rank of this host stirs as long as its process runs, whatever that does; with
  /// one of another host something must be under way, of which a byte must have moved.
  struct Stuck {
    std::string transfer;
    Awaited awaited;
  };
  std::optional<Stuck> find_stuck(int64_t now_ns, int64_t limit_ns);
  /// Adds what is waited for.
  void prepare(Sleep& sleep);
  /// A peer has said something; from any thread.
  bool has_news() const;

  /// The rank of another host wants to connect.
  void meet(int rank);

  /// Forgets what concerns a process set: its number will be another one's. Every rank does, so
  /// what was sent in it and comes later is known for what it is.
  void forget(int32_t set);
  /// The world is over in good order: everything that waits fails, and later sends too. Messages
  /// that have come can still be received.
  void end(const Error& error);
  /// The world is lost: the same at once, and nothing can be received.
  void drop(const Error& error);
  /// Gives up connecting; the last thing.
  void stop();

  /// A transfer of this owner (null: of any) that is not over; null: there is none.
  const Transfer* pending_of(const void* owner) const;
  /// Messages that nobody received.
  std::vector<std::unique_ptr<Arrived>> leftovers() { return matching_.drop_arrived(); }

 private:
  /// A message that was offered and is wanted, on its way.
  struct Incoming {
    std::unique_ptr<Transfer> receive;
    int source;
    uint64_t key;
    bool shown;  ///< the address is one in the sender's shared heap
    uint64_t address;
    uint64_t bytes;
    std::byte* to;
    uint64_t got = 0;
  };
  /// A message that the receiver has asked for.
  struct Asked {
    Transfer send;
    uint64_t key;
    uint64_t sent = 0;
  };
  struct Peer {
    explicit Peer(int of) : rank(of) {}

    int rank;
    int place = -1;  ///< on this host; -1: it is on another one
    Wire wire;
    Channel* channel = nullptr;  ///< to another host, once it is open
    bool clogged = false;        ///< its frames wait for room there
    std::unordered_map<uint64_t, Transfer> offered;
    std::list<Asked> asked;
    std::vector<std::unique_ptr<Incoming>> expected;  ///< in parts
    std::unique_ptr<Transfer> receiving;              ///< what the eager message goes to
    std::unique_ptr<Arrived> arriving;                ///< or where it is kept
    Incoming* part = nullptr;                         ///< whose part comes
    uint64_t credit = kCredit;                        ///< bytes that may be sent eagerly
    uint64_t stirred = 0;  ///< when it was last looked at, at `looked_ns`
    int64_t looked_ns = 0;
    int64_t stuck_ns = 0;
    uint64_t outstanding = 0;  ///< eager bytes received for which no credit was given back
    uint64_t owed = 0;         ///< of these, what is kept no longer
  };

  static constexpr size_t kEager = 64 << 10;  ///< the longest message that goes unasked
  /// Of eager messages that nobody has received, from one sender.
  static constexpr uint64_t kCredit = 64 << 20;
  static constexpr uint64_t kGiveBack = kCredit / 8;
  static constexpr uint64_t kMessageCost = 256;  ///< besides its bytes
  static constexpr uint64_t kMostBytes = uint64_t{1} << 48;
  static constexpr size_t kStep = 1 << 20;  ///< bytes that are moved at a time
  static constexpr size_t kCopy = 4 << 20;  ///< the same by a single copy: each has its price
  static constexpr size_t kPart = 2 << 20;

  static uint64_t cost_of(uint64_t bytes) { return bytes + kMessageCost; }

  uint32_t removed(int32_t set) const {
    if (removed_.empty()) return 0;
    const auto found = removed_.find(set);
    return found == removed_.end() ? 0 : found->second;
  }
  /// Its process set was removed here.
  bool is_over(int32_t communicator) const {
    const uint32_t ahead = sets_before(communicator) - removed(set_of(communicator));
    return static_cast<int32_t>(ahead * kSets) < 0;  // the count wraps
  }

  bool has_more() const {
    return !unread_.empty() ||
           std::any_of(more_.begin(), more_.end(), [](uint64_t word) { return word != 0; });
  }

  // pairs.cpp: what the callers want
  void start(Transfer transfer);
  void start_send(Transfer send);
  void start_receive(Transfer receive);
  void withdraw(const std::shared_ptr<void>& owner);
  std::optional<uint64_t> shared_offset(const Peer& peer, const Transfer& send) const;
  void send_to_self(Transfer send);
  bool take_posted();
  bool look();
  void finish(const Transfer& transfer, const Message& message = {},
              const std::optional<Error>& error = std::nullopt);
  bool has_room(Transfer& receive, int source, uint64_t bytes);
  void deliver(Transfer& receive, int source, uint64_t bytes, const std::byte* from);
  void fetch(std::unique_ptr<Transfer> receive, const Arrived& offer);
  bool advance_pulls();
  bool pull(Incoming& incoming);
  size_t copy(const Peer& peer, const Incoming& incoming);
  void ask(std::unique_ptr<Incoming> incoming);
  void fail_all(const Error& error);

  // pairs_stuck.cpp: what makes no progress
  std::optional<Stuck> waits_for(const Peer& peer) const;

  // pairs_wires.cpp: what the peers say
  Peer& peer_of(int rank);
  Peer& make_peer(int rank);
  void note(Peer& peer, Note what, uint64_t key, uint64_t bytes = 0);
  void write(Peer& peer, Frame frame);
  void queue(Peer& peer, Frame frame);
  void push(Peer& peer);
  void feed(Peer& peer);
  void sent(const Frame& frame);
  void give_back(Peer& peer, uint64_t bytes);
  bool look_at_rings();
  bool look_at_channels();
  bool take_opened();
  void note_room(Peer& peer);
  void note_streaming();
  bool read(Peer& peer);
  std::span<std::byte> begin(Peer& peer, const Header& header);
  std::span<std::byte> begin_eager(Peer& peer, const Header& header);
  std::span<std::byte> begin_part(Peer& peer, const Header& header);
  void end(Peer& peer, const Header& header);
  void end_eager(Peer& peer, const Header& header);
  void end_part(Peer& peer);
  bool is_in_heap(const Peer& peer, const Header& header) const;
  void take_offer(Peer& peer, const Header& header);
  void take_answer(Peer& peer, const Header& header);
  void take_credit(Peer& peer, const Header& header);
  [[noreturn]] void lose(int rank, const std::string& why);
  void lose_by_error(Peer& peer);
  void lose_channel(Peer& peer);

  Endpoint& endpoint_;
  const HostMap& hosts_;
  const Events events_;
  std::optional<SingleCopy> single_copy_;
  Matching matching_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> local_;  ///< by place; null: nothing was said yet
  std::vector<std::unique_ptr<Incoming>> pulls_;
  uint64_t next_key_ = 1;
  int64_t open_ = 0;                               ///< transfers that are not over
  int64_t unsent_ = 0;                             ///< frames that are not all on their way
  std::unordered_map<int32_t, uint32_t> removed_;  ///< by number: how many process sets
  std::optional<Error> ended_;
  bool lost_ = false;
  std::vector<uint64_t> more_;  ///< as the flags: rings that were not read to the end

  std::atomic<bool> news_{false};       ///< other hosts have said something
  std::unique_ptr<Channels> channels_;  ///< null: there are no other hosts
  bool connected_ = false;              ///< to one of them
  std::span<Channel* const> ready_{};
  std::vector<Peer*> unread_;  ///< channels that were not read to the end
  uint32_t looks_ = 0;
  bool streaming_ = false;  ///< over channels

  std::mutex posted_mutex_;
  std::vector<Transfer> posted_;
  std::atomic<bool> has_posted_{false};
  std::deque<Transfer> taken_;  ///< was posted, begins next; if one throws, `drop` fails the rest
};

}  // namespace sirtaki
