#include "engine/control/host_rings.h"

#include <algorithm>
#include <utility>

#include "base/frames.h"

namespace sirtaki {

HostRings::HostRings(const RankContext& leader, Lost lost)
    : leader_(leader),
      ranks_(leader.hosts.ranks_on(leader.hosts.host_of(leader.rank))),
      lost_(std::move(lost)),
      up_in_(ranks_.size()),
      down_out_(ranks_.size()) {}

bool HostRings::has_up() const {
  for (int place = 1; place < leader_.region->ranks(); ++place) {
    if (!leader_.region->up(place).empty()) return true;
  }
  return false;
}

void HostRings::receive_up(const ReceiveUp& receive) {
  for (size_t place = 1; place < ranks_.size(); ++place) {
    ByteRing& ring = leader_.region->up(static_cast<int>(place));
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

void HostRings::send_down(const Recipients& to, std::string_view message, std::string* own) {
  const auto send = [&](int rank) {
    const int place = leader_.hosts.place_of(rank);
    const bool by_ring = place != 0 || own == nullptr;
    std::string& stream = by_ring ? down_out_[static_cast<size_t>(place)] : *own;
    append_frame(stream, message, leader_.region->generation());
    if (by_ring) push(static_cast<size_t>(place));
  };
  const int host = leader_.hosts.host_of(leader_.rank);
  const Stretch here = to.ranks.empty() ? to.members.of_hosts({host, host + 1}) : Stretch{};
  for (int at = here.begin; at < here.end; ++at) send(to.members.rank_at(at));
  for (const int rank : to.ranks) {
    if (leader_.hosts.host_of(rank) == host) send(rank);
  }
}

void HostRings::flush() {
  for (size_t place = 0; place < down_out_.size(); ++place) {
    if (!down_out_[place].empty()) push(place);
  }
}

bool HostRings::has_backlog() const {
  return std::any_of(down_out_.begin(), down_out_.end(),
                     [](const std::string& waiting) { return !waiting.empty(); });
}

void HostRings::push(size_t place) {
  std::string& waiting = down_out_[place];
  take_word_of(ranks_[place], lost_, [&] {
    // Nothing more is written to a ring whose reader has overwritten it.
    std::string frames = std::exchange(waiting, {});
    frames.erase(0, leader_.region->down(static_cast<int>(place)).write(frames));
    waiting = std::move(frames);
  });
  leader_.doorbell.ring(static_cast<int>(place), kControl);
}

}  // namespace sirtaki
