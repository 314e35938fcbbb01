#include "engine/control/control.h"

#include "base/frames.h"

namespace sirtaki {

Control::Control(const HostMap& hosts, int rank, std::shared_ptr<Region> region,
                 const Doorbell& doorbell)
    : hosts_(hosts),
      region_(std::move(region)),
      rank_(rank),
      place_(hosts.place_of(rank)),
      doorbell_(doorbell) {
  if (rank_ == 0) {
    down_out_.resize(static_cast<size_t>(region_->ranks()));
    up_in_.resize(static_cast<size_t>(region_->ranks()));
  }
}

void Control::frame(Outgoing& out, std::string_view message) const {
  const size_t before = out.waiting.size();
  out.waiting.reserve(before + sizeof(FrameHead) + message.size());  // whole or not at all
  append_frame(out.waiting, message, region_->generation());
  out.framed += out.waiting.size() - before;
}

void Control::push(ByteRing& ring, Outgoing& outgoing) {
  outgoing.waiting.erase(0, ring.write(outgoing.waiting));
}

void Control::send_up(std::string_view message, bool urgent) {
  if (relays_.leader != nullptr) return relays_.leader->send_up(message);
  frame(up_out_, message);
  push(region_->up(place_), up_out_);
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
  bool others_sent = true;
  for (const int place : places_here(to)) {
    if (place == place_) {
      to_self = true;
      continue;
    }
    Outgoing& outgoing = down_out_[static_cast<size_t>(place)];
    frame(outgoing, message);
    push(region_->down(place), outgoing);
    others_sent &= outgoing.waiting.empty();
    doorbell_.ring(place, kControl);
  }
  if (to_self && others_sent && own_.empty()) {
    frame(down_out_[0], message);
    push(region_->down(0), down_out_[0]);
  } else if (to_self) {
    own_.push_back({std::string(message), {}});
    for (const Outgoing& outgoing : down_out_) own_.back().others.push_back(outgoing.framed);
  }
  note_backlog();
}

std::vector<int> Control::places_here(const Recipients& to) const {
  std::vector<int> places;
  const Stretch here = to.ranks.empty() ? to.members.of_hosts({0, 1}) : Stretch{};
  for (int at = here.begin; at < here.end; ++at) {
    places.push_back(hosts_.place_of(to.members.rank_at(at)));
  }
  for (const int rank : to.ranks) {
    if (hosts_.host_of(rank) == 0) places.push_back(hosts_.place_of(rank));
  }
  return places;
}

void Control::drop_up() {
  up_out_.waiting.clear();
  note_backlog();
}

void Control::flush() {
  if (!has_backlog()) return;
  if (!up_out_.waiting.empty()) {
    push(region_->up(place_), up_out_);
    tell_receiver(true);
  }
  for (size_t r = 1; r < down_out_.size(); ++r) {
    if (down_out_[r].waiting.empty()) continue;
    push(region_->down(static_cast<int>(r)), down_out_[r]);
    doorbell_.ring(static_cast<int>(r), kControl);
  }
  push_own();
  note_backlog();
}

void Control::push_own() {
  const auto others_have = [&](const Own& own) {
    for (size_t r = 1; r < down_out_.size(); ++r) {
      if (down_out_[r].pushed() < own.others[r]) return false;
    }
    return true;
  };
  while (!own_.empty() && others_have(own_.front())) {
    frame(down_out_[0], own_.front().message);
    own_.pop_front();
  }
  if (rank_ == 0) push(region_->down(0), down_out_[0]);
}

/// Tells the driver, who may be another thread and asleep, that there is something to flush.
void Control::note_backlog() {
  bool waits = !up_out_.waiting.empty() || !own_.empty();
  for (const Outgoing& outgoing : down_out_) waits |= !outgoing.waiting.empty();
  backlog_.store(waits);
  if (waits) doorbell_.ring(place_, kControl);
}

void Control::receive_down(const Receive& receive) {
  if (!has_down()) return;
  region_->down(place_).read(down_in_);
  take_frames(down_in_, receive, region_->generation());
}

void Control::receive_up(int place, const Receive& receive) {
  ByteRing& ring = region_->up(place);
  if (ring.empty()) return;
  std::string& partial = up_in_[static_cast<size_t>(place)];
  ring.read(partial);
  take_frames(partial, receive, region_->generation());
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
