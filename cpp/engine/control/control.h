#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/frames.h"
#include "engine/control/host_rings.h"
#include "engine/control/peer_watch.h"
#include "engine/control/relay.h"
#include "engine/rank_context.h"

namespace sirtaki {

/// The control messages between a rank and the sequencer on rank 0: through rings in shared memory,
/// and to and from other hosts through the relays of the hosts' leaders. Sending never blocks:
/// bytes that do not fit into a ring wait here.
class Control {
 public:
  using Receive = std::function<void(std::string_view message)>;

  /// Ends the world by `watch` when a rank sends what no rank sends.
  Control(const RankContext& context, const PeerWatch& watch) : context_(context), watch_(watch) {
    if (context.rank == 0) rings_.emplace(context, lost_);
  }

  /// `urgent`: wake rank 0's engine even if it does not expect requests.
  void send_up(std::string_view message, bool urgent) {
    if (Relay* relay = watch_.relay()) return relay->send_up(message);
    append_frame(up_out_, message, context_.region->generation());
    up_out_.erase(0, context_.region->up(context_.place, RingEnd::kWrites).write(up_out_));
    tell_receiver(urgent);
    note_backlog();
  }
  /// Rank 0 holds its own copy until the others' copies are in their rings: it must not begin an
  /// operation that a peer with a full ring does not know yet.
  void send_down(const Recipients& to, std::string_view message) {
    if (Relay* relay = watch_.relay()) relay->send_down(to, message);
    rings_->send_down(to, message, &held_);
    note_backlog();
  }

  /// Drops messages that wait to be sent up: the sequencer no longer reads them.
  void drop_up() {
    up_out_.clear();
    note_backlog();
  }

  /// Retries sending what waits.
  void flush() {
    if (!has_backlog()) return;
    if (!up_out_.empty()) {
      up_out_.erase(0, context_.region->up(context_.place, RingEnd::kWrites).write(up_out_));
      tell_receiver(true);
    }
    if (rings_) rings_->flush();
    note_backlog();
  }
  /// Whether bytes wait for room in a ring.
  bool has_backlog() const { return backlog_.load(); }

  /// Passes on the messages that came from the sequencer.
  void receive_down(const Receive& receive) {
    if (!has_down()) return;
    if (context_.rank == 0) {
      has_own_.store(false, std::memory_order_relaxed);
      down_in_.swap(own_);
    } else {
      context_.region->down(context_.place, RingEnd::kReads).read(down_in_);
    }
    take_frames(down_in_, receive, context_.region->generation());
  }
  /// Passes on the messages that came from other ranks; rank 0 only.
  void receive_up(const ReceiveUp& receive) {
    rings_->receive_up(receive);
    if (watch_.relay() == nullptr) return;
    watch_.relay()->receive_up([&](const Reporters& from, std::string_view message) {
      const int first =
          from.hosts.empty() ? from.ranks.at(0) : context_.hosts.leader_of(from.hosts[0].begin);
      take_word_of(first, lost_, [&] { receive(from, message); });
    });
  }

  bool has_down() const {
    return context_.rank == 0 ? has_own()
                              : !context_.region->down(context_.place, RingEnd::kReads).empty();
  }
  /// Whether rank 0 has a message for itself, of which no other rank notifies its driver.
  bool has_own() const { return has_own_.load(); }
  bool has_up() const {
    if (!rings_) return false;
    const Relay* relay = watch_.relay();
    return (relay != nullptr && relay->has_up()) || rings_->has_up();
  }
  /// Whether a message that `has_up` reports must be read soon; rank 0 only.
  bool has_urgent() const {
    return context_.rank == 0 && context_.region->leader().urgent.load() != 0;
  }
  /// Call before all messages are received.
  void forget_urgent() {
    if (has_urgent()) context_.region->leader().urgent.exchange(0);
  }
  /// Receives what has arrived from other hosts, unless the relay's thread is doing so.
  void look() const {
    if (Relay* relay = watch_.relay()) relay->look();
  }

 private:
  /// Notifies the driver, perhaps another thread and asleep, that there are bytes to flush.
  void note_backlog() {
    const bool waits = !up_out_.empty() || (rings_ && rings_->has_backlog());
    if (!waits && !held_.empty()) {
      own_.append(held_);
      held_.clear();
      has_own_.store(true);
    }
    backlog_.store(waits);
    if (waits) context_.doorbell.ring(context_.place, kControl);
  }

  /// Wakes the reader of this rank's ring: rank 0's engine, or the relay on another host's leader.
  void tell_receiver(bool urgent) const {
    if (context_.hosts.host_of(context_.rank) == 0) {
      if (urgent) context_.region->leader().urgent.store(1);
      return context_.doorbell.ring(0, urgent ? kControl : kRequest);
    }
    if (context_.region->leader().relay.claim() != 0) watch_.tell_relay();
  }

  const RankContext& context_;
  const PeerWatch& watch_;
  const Lost lost_ = [this](const Loss& loss) { watch_.abort(loss); };
  std::string up_out_;              ///< bytes that did not fit into the ring up
  std::optional<HostRings> rings_;  ///< rank 0: to and from the other ranks of the host
  std::string own_;                 ///< rank 0: to itself
  std::string held_;                ///< the same, after bytes that did not fit into other rings
  std::atomic<bool> has_own_{false};
  std::atomic<bool> backlog_{false};  ///< written under the engine's lock
  std::string down_in_;
};

}  // namespace sirtaki
