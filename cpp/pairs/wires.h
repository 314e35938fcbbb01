#pragma once

#include <atomic>
#include <deque>
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

/// A peer sent what no rank sends.
struct Lie : Error {
  explicit Lie(const std::string& what) : Error(ErrorCode::kInternal, what) {}
};

/// The traffic to and from each peer: through rings on this host, over channels to others. `Pairs`
/// interprets the headers.
class Wires {
 public:
  Wires(Pairs& pairs, Endpoint& endpoint, const HostMap& hosts, const MakeNetwork& make_network);

  Peer& peer_of(int rank);
  const std::map<int, std::unique_ptr<Peer>>& peers() const { return peers_; }
  /// The rank of another host wants to connect.
  void meet(int rank);
  bool is_here(int rank) const { return hosts_.host_of(rank) == hosts_.host_of(endpoint_.rank); }

  void write(Peer& peer, Frame frame);
  void note(Peer& peer, Note what, uint64_t key, uint64_t bytes = 0) {
    write(peer, {{what, 0, 0, bytes, key, 0}});
  }
  /// Writes while the peer's wire is being written or read, whose caller handles errors.
  void queue(Peer& peer, Frame frame);
  /// Whether frames remain that have not been sent off completely.
  bool has_unsent() const { return unsent_ > 0; }

  /// Reads what peers have sent; false if they sent nothing.
  bool look();
  bool has_news() const;
  /// Whether `look` would read something.
  bool is_ready();
  /// Whether bytes are in flight that only a driver moves.
  bool busy() const { return streaming_ || has_more() || (connected_ && channels_->losing()); }
  /// Updates what is in transfer with peers of other hosts.
  void note_streaming();
  void note_room(Peer& peer);
  void prepare(Sleep& sleep);
  /// Reports the lost rank: see Channels.
  void check_patience() {
    if (connected_ && !ended_) channels_->check_patience();
  }
  /// The peer has announced that it leaves.
  void excuse(const Peer& peer) {
    if (!peer.is_here()) channels_->excuse(peer.rank);
  }

  /// Ends all writing.
  void end();
  /// Returns the frames that will not be written to the peer.
  std::deque<Frame> drop(Peer& peer);
  /// Stops connecting; the last call.
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
  template <class Work>
  void guard(Peer& peer, Work work);
  void lose_channel(Peer& peer);

  Pairs& pairs_;
  Endpoint& endpoint_;
  const HostMap& hosts_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  bool ended_ = false;
  int64_t unsent_ = 0;

  std::vector<Peer*> local_;    ///< by place; null: no traffic yet
  std::vector<uint64_t> more_;  ///< like the flags: rings that were not read to the end

  std::atomic<bool> news_{false};       ///< other hosts have sent something
  std::unique_ptr<Channels> channels_;  ///< null: there are no other hosts
  bool connected_ = false;              ///< to one of them
  std::span<Channel* const> ready_{};
  std::vector<Peer*> unread_;  ///< channels that were not read to the end
  uint32_t looks_ = 0;
  bool streaming_ = false;  ///< over channels
};

}  // namespace sirtaki
