#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/control/leader_relay.h"
#include "engine/control/sequencer_relay.h"
#include "transport/hosts.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {

/// The control messages between a rank and the sequencer on rank 0: through rings in shared memory,
/// and to and from other hosts through the relays of the hosts' leaders. Sending never blocks: what
/// a full ring does not take waits here.
class Control {
 public:
  using Receive = std::function<void(std::string_view message)>;

  /// What carries messages between hosts; empty where the world is one host.
  struct Relays {
    SequencerRelay* sequencer = nullptr;  ///< on rank 0
    LeaderRelay* leader = nullptr;        ///< on the leader of another host
    std::function<void()> wake;           ///< wakes that leader, on the other ranks of its host
  };

  Control(const HostMap& hosts, int rank, std::shared_ptr<Region> region, const Doorbell& doorbell,
          Relays relays);

  const Relays& relays() const { return relays_; }

  /// `urgent`: wake rank 0's engine even if it does not expect requests.
  void send_up(std::string_view message, bool urgent);
  /// Rank 0 keeps its own copy, until the others' are in their rings: it must not begin an
  /// operation of which a peer, with its ring full, does not know yet.
  void send_down(const Recipients& to, std::string_view message);

  /// Forgets what waits to be sent up: the sequencer listens no more.
  void drop_up();

  /// Tries again to send what waits.
  void flush();
  /// Something waits for room in a ring.
  bool has_backlog() const { return backlog_.load(); }

  /// Hands over the messages that came from the sequencer.
  void receive_down(const Receive& receive);
  /// Hands over the messages that came from a rank of the host; rank 0 only.
  void receive_up(int place, const Receive& receive);

  /// Hands over the messages that came from other hosts; rank 0 only.
  void receive_hosts(const SequencerRelay::Receive& receive) {
    if (relays_.sequencer != nullptr) relays_.sequencer->receive_up(receive);
  }

  bool has_down() const { return rank_ == 0 ? has_own() : !region_->down(place_).empty(); }
  /// Rank 0 has something for itself, of which nobody else tells its driver.
  bool has_own() const { return has_own_.load(); }
  bool has_up() const;
  /// One of the messages that `has_up` tells of must be received soon; rank 0 only.
  bool has_urgent() const { return rank_ == 0 && region_->leader().urgent.load() != 0; }
  /// All messages are received next.
  void forget_urgent() {
    if (has_urgent()) region_->leader().urgent.exchange(0);
  }
  /// Takes what has come from other hosts, if the relay's thread does not do so just now.
  void look() const;

 private:
  template <class Send>
  void for_places_here(const Recipients& to, Send send) const;
  void push_down(int place);
  void note_backlog();
  void tell_receiver(bool urgent) const;
  void frame(std::string& stream, std::string_view message) const;

  const HostMap& hosts_;
  std::shared_ptr<Region> region_;
  int rank_;
  int place_;
  const Doorbell& doorbell_;
  const Relays relays_;
  std::string up_out_;                 ///< what the ring up did not take
  std::vector<std::string> down_out_;  ///< by place: the same of the rings down
  std::string own_;                    ///< rank 0: to itself
  std::string held_;                   ///< the same, behind what other rings did not take
  std::atomic<bool> has_own_{false};
  std::atomic<bool> backlog_{false};  ///< written under the engine's lock
  std::string down_in_;
  std::vector<std::string> up_in_;
};

}  // namespace sirtaki
