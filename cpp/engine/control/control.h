#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/control/host_rings.h"
#include "engine/control/relay.h"
#include "engine/rank_context.h"

namespace sirtaki {

/// The control messages between a rank and the sequencer on rank 0: through rings in shared memory,
/// and to and from other hosts through the relays of the hosts' leaders. Sending never blocks: what
/// a full ring does not take waits here.
class Control {
 public:
  using Receive = std::function<void(std::string_view message)>;

  /// What carries messages between hosts; empty where the world is one host.
  struct Carrier {
    Relay* relay = nullptr;      ///< on leaders
    std::function<void()> wake;  ///< wakes that of another host than rank 0's, on its other ranks
  };

  /// `lost` is called when a rank says what no rank says.
  Control(const RankContext& context, Carrier carrier, Lost lost);

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
  /// Hands over the messages that came from other ranks; rank 0 only.
  void receive_up(const ReceiveUp& receive);

  bool has_down() const {
    return context_.rank == 0 ? has_own() : !context_.region->down(context_.place).empty();
  }
  /// Rank 0 has something for itself, of which nobody else tells its driver.
  bool has_own() const { return has_own_.load(); }
  bool has_up() const;
  /// One of the messages that `has_up` tells of must be received soon; rank 0 only.
  bool has_urgent() const {
    return context_.rank == 0 && context_.region->leader().urgent.load() != 0;
  }
  /// All messages are received next.
  void forget_urgent() {
    if (has_urgent()) context_.region->leader().urgent.exchange(0);
  }
  /// Takes what has come from other hosts, if the relay's thread does not do so just now.
  void look() const {
    if (carrier_.relay != nullptr) carrier_.relay->look();
  }

 private:
  void note_backlog();
  void tell_receiver(bool urgent) const;

  const RankContext& context_;
  const Carrier carrier_;
  const Lost lost_;
  std::string up_out_;              ///< what the ring up did not take
  std::optional<HostRings> rings_;  ///< rank 0: to and from the other ranks of the host
  std::string own_;                 ///< rank 0: to itself
  std::string held_;                ///< the same, behind what other rings did not take
  std::atomic<bool> has_own_{false};
  std::atomic<bool> backlog_{false};  ///< written under the engine's lock
  std::string down_in_;
};

}  // namespace sirtaki
