#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/frames.h"
#include "engine/rank_context.h"
#include "engine/sequencer/roster.h"

namespace sirtaki {

using Lost = std::function<void(const Loss&)>;
/// Takes a message (Up …) that all of these sent.
using ReceiveUp = std::function<void(const Reporters& from, std::string_view message)>;

/// Handles a rank's message: a rank that sends what no rank sends counts as lost.
template <class Take>
void take_word_of(int rank, const Lost& lost, Take take) {
  try {
    take();
  } catch (const Error& error) {
    lost({rank, -1, std::string("it sent what no rank sends: ") + error.what()});
  }
}

/// The rings in shared memory between the leader of a host and its ranks, at the leader's end.
/// Sending never blocks: bytes that do not fit into a ring wait here.
class HostRings {
 public:
  HostRings(const RankContext& leader, Lost lost)
      : leader_(leader),
        ranks_(leader.hosts.ranks_on(leader.hosts.host_of(leader.rank))),
        lost_(std::move(lost)),
        up_in_(ranks_.size()),
        down_out_(ranks_.size()) {}

  /// Whether a rank other than the leader has sent something.
  bool has_up() const {
    for (int place = 1; place < leader_.region->ranks(); ++place) {
      if (!leader_.region->up(place, RingEnd::kReads).empty()) return true;
    }
    return false;
  }
  void receive_up(const ReceiveUp& receive) {
    for (size_t place = 1; place < ranks_.size(); ++place) {
      ByteRing ring = leader_.region->up(static_cast<int>(place), RingEnd::kReads);
      if (ring.empty()) continue;
      std::string& stream = up_in_[place];
      const int rank = ranks_[place];
      take_word_of(rank, lost_, [&] {
        ring.read(stream);
        take_frames(
            stream, [&](std::string_view message) { receive({{rank}, {}}, message); },
            leader_.region->generation());
      });
    }
  }

  /// Sends to ranks of this host; the leader's own copy goes to `own`, unless that is null.
  void send_down(const Recipients& to, std::string_view message, std::string* own = nullptr) {
    const auto send = [&](int rank) {
      const auto place = static_cast<size_t>(leader_.hosts.place_of(rank));
      const bool by_ring = place != 0 || own == nullptr;
      append_frame(by_ring ? down_out_[place] : *own, message, leader_.region->generation());
      if (by_ring) push(place);
    };
    const int host = leader_.hosts.host_of(leader_.rank);
    const Stretch here = to.ranks.empty() ? to.members.of_hosts({host, host + 1}) : Stretch{};
    for (int at = here.begin; at < here.end; ++at) send(to.members.rank_at(at));
    for (const int rank : to.ranks) {
      if (leader_.hosts.host_of(rank) == host) send(rank);
    }
  }
  /// Retries sending what waits.
  void flush() {
    for (size_t place = 0; place < down_out_.size(); ++place) {
      if (!down_out_[place].empty()) push(place);
    }
  }
  bool has_backlog() const {
    return std::ranges::any_of(down_out_, [](const auto& waiting) { return !waiting.empty(); });
  }

 private:
  void push(size_t place) {
    std::string& waiting = down_out_[place];
    take_word_of(ranks_[place], lost_, [&] {
      // Stop writing to a ring whose reader has overwritten it.
      std::string frames = std::exchange(waiting, {});
      ByteRing ring = leader_.region->down(static_cast<int>(place), RingEnd::kWrites);
      frames.erase(0, ring.write(frames));
      waiting = std::move(frames);
    });
    leader_.doorbell.ring(static_cast<int>(place), kControl);
  }

  const RankContext& leader_;
  const std::vector<int>& ranks_;  ///< by place
  const Lost lost_;
  std::vector<std::string> up_in_;     ///< by place: the beginning of a message
  std::vector<std::string> down_out_;  ///< by place: bytes that did not fit into its ring
};

}  // namespace sirtaki
