#include "engine/control/control.h"

#include "base/frames.h"

namespace sirtaki {

Control::Control(const HostMap& hosts, int rank, std::shared_ptr<Region> region,
                 const Doorbell& doorbell, Relays relays)
    : hosts_(hosts),
      region_(std::move(region)),
      rank_(rank),
      place_(hosts.place_of(rank)),
      doorbell_(doorbell),
      relays_(std::move(relays)) {
  if (rank_ == 0) {
    down_out_.resize(static_cast<size_t>(region_->ranks()));
    up_in_.resize(static_cast<size_t>(region_->ranks()));
  }
}

void Control::frame(std::string& stream, std::string_view message) const {
  stream.reserve(stream.size() + sizeof(FrameHead) + message.size());  // whole or not at all
  append_frame(stream, message, region_->generation());
}

void Control::send_up(std::string_view message, bool urgent) {
  if (relays_.leader != nullptr) return relays_.leader->send_up(message);
  frame(up_out_, message);
  up_out_.erase(0, region_->up(place_).write(up_out_));
  tell_receiver(urgent);
  note_backlog();
}

/// Wakes who reads this rank's ring: rank 0's engine, or the relay on another host's leader.
void Control::tell_receiver(bool urgent) const {
  if (!relays_.wake) {
    if (urgent) region_->leader().urgent.store(1);
    return doorbell_.ring(0, urgent ? kControl : kRequest);
  }
  if (region_->leader().relay.claim() != 0) relays_.wake();
}

void Control::send_down(const Recipients& to, std::string_view message) {
  if (relays_.sequencer != nullptr) relays_.sequencer->send_down(to, message);
  bool to_self = false;
  for_places_here(to, [&](int place) {
    if (place == place_) {
      to_self = true;
    } else {
      frame(down_out_[static_cast<size_t>(place)], message);
      push_down(place);
    }
  });
  if (to_self) frame(held_, message);
  note_backlog();
}

void Control::push_down(int place) {
  std::string& outgoing = down_out_[static_cast<size_t>(place)];
  outgoing.erase(0, region_->down(place).write(outgoing));
  doorbell_.ring(place, kControl);
}

template <class Send>
void Control::for_places_here(const Recipients& to, Send send) const {
  const Stretch here = to.ranks.empty() ? to.members.of_hosts({0, 1}) : Stretch{};
  for (int at = here.begin; at < here.end; ++at) send(hosts_.place_of(to.members.rank_at(at)));
  for (const int rank : to.ranks) {
    if (hosts_.host_of(rank) == 0) send(hosts_.place_of(rank));
  }
}

void Control::drop_up() {
  up_out_.clear();
  note_backlog();
}

void Control::flush() {
  if (!has_backlog()) return;
  if (!up_out_.empty()) {
    up_out_.erase(0, region_->up(place_).write(up_out_));
    tell_receiver(true);
  }
  for (size_t place = 1; place < down_out_.size(); ++place) {
    if (!down_out_[place].empty()) push_down(static_cast<int>(place));
  }
  note_backlog();
}

/// Tells the driver, who may be another thread and asleep, that there is something to flush.
void Control::note_backlog() {
  bool waits = !up_out_.empty();
  for (const std::string& outgoing : down_out_) waits |= !outgoing.empty();
  if (!waits && !held_.empty()) {
    own_.append(held_);
    held_.clear();
    has_own_.store(true);
  }
  backlog_.store(waits);
  if (waits) doorbell_.ring(place_, kControl);
}

void Control::receive_down(const Receive& receive) {
  if (!has_down()) return;
  if (rank_ == 0) {
    has_own_.store(false, std::memory_order_relaxed);
    down_in_.swap(own_);
  } else {
    region_->down(place_).read(down_in_);
  }
  take_frames(down_in_, receive, region_->generation());
}

void Control::receive_up(int place, const Receive& receive) {
  ByteRing& ring = region_->up(place);
  if (ring.empty()) return;
  std::string& partial = up_in_[static_cast<size_t>(place)];
  ring.read(partial);
  take_frames(partial, receive, region_->generation());
}

void Control::look() const {
  if (relays_.sequencer != nullptr) relays_.sequencer->look();
  if (relays_.leader != nullptr) relays_.leader->look();
}

bool Control::has_up() const {
  if (rank_ != 0) return false;
  if (relays_.sequencer != nullptr && relays_.sequencer->has_up()) return true;
  for (int r = 1; r < region_->ranks(); ++r) {
    if (!region_->up(r).empty()) return true;
  }
  return false;
}

}  // namespace sirtaki
