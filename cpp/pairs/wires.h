#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pairs/peer.h"
#include "transport/channels.h"
#include "transport/group.h"

namespace sirtaki {

class Pairs;

/// A peer says what no rank says.
struct Lie : Error {
  explicit Lie(const std::string& what) : Error(ErrorCode::kInternal, what) {}
};

/// What goes to and comes from each peer: through rings on this host, over channels to others.
/// `Pairs` says what a header means.
class Wires {
 public:
  /// `invite(rank)`: a rank of another host is to call `meet` with this rank.
  Wires(Pairs& pairs, Endpoint& endpoint, const HostMap& hosts, const MakeNetwork& make_network,
        std::function<void(int rank)> invite);

  Peer& peer_of(int rank);
  const std::map<int, std::unique_ptr<Peer>>& peers() const { return peers_; }
  /// The rank of another host wants to connect.
  void meet(int rank);
  bool is_here(int rank) const { return hosts_.host_of(rank) == hosts_.host_of(endpoint_.rank); }

  void write(Peer& peer, Frame frame);
  void note(Peer& peer, Note what, uint64_t key, uint64_t bytes = 0) {
    write(peer, {{what, 0, 0, bytes, key, 0}});
  }
  /// The same while the peer's wire is being written or read, which deals with errors.
  void queue(Peer& peer, Frame frame);
  /// Frames that are not all on their way.
  bool has_unsent() const { return unsent_ > 0; }

  /// Reads what peers have said; false if that was nothing.
  bool look();
  bool has_news() const;
  /// Whether `look` would find something.
  bool is_ready();
  /// Bytes are under way that only a driver moves.
  bool busy() const { return streaming_ || has_more() || (connected_ && channels_->losing()); }
  /// What is under way with the peer has changed.
  void note_streaming();
  void note_room(Peer& peer);
  void prepare(Sleep& sleep);
  /// Names who is lost: see Channels.
  void check_patience() {
    if (connected_ && !ended_) channels_->check_patience();
  }
  /// The peer has said that it leaves.
  void excuse(const Peer& peer) {
    if (!peer.is_here()) channels_->excuse(peer.rank);
  }

  /// Nothing more is written.
  void end();
  /// Gives what will not be written to the peer.
  std::deque<Frame> drop(Peer& peer);
  /// Gives up connecting; the last thing.
  void stop();

 private:
  Peer& make_peer(int rank);
  bool take_opened();
  bool look_at_rings();
  bool look_at_channels();
  bool has_more() const;
  bool read(Peer& peer);
  void push(Peer& peer);
  void sent(const std::shared_ptr<void>& owner);
  void lose_by_error(Peer& peer);
  void lose_channel(Peer& peer);

  Pairs& pairs_;
  Endpoint& endpoint_;
  const HostMap& hosts_;
  const std::function<void(int rank)> invite_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  bool ended_ = false;
  int64_t unsent_ = 0;

  std::vector<Peer*> local_;    ///< by place; null: nothing was said yet
  std::vector<uint64_t> more_;  ///< as the flags: rings that were not read to the end

  std::atomic<bool> news_{false};       ///< other hosts have said something
  std::unique_ptr<Channels> channels_;  ///< null: there are no other hosts
  bool connected_ = false;              ///< to one of them
  std::span<Channel* const> ready_{};
  std::vector<Peer*> unread_;  ///< channels that were not read to the end
  uint32_t looks_ = 0;
  bool streaming_ = false;  ///< over channels
};

}  // namespace sirtaki
