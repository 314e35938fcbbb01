#include "engine/control/control.h"

#include "base/frames.h"

namespace sirtaki {

Control::Control(const RankContext& context, Carrier carrier, Lost lost)
    : context_(context), carrier_(std::move(carrier)), lost_(std::move(lost)) {
  if (context.rank == 0) rings_.emplace(context, lost_);
}

void Control::send_up(std::string_view message, bool urgent) {
  if (carrier_.relay != nullptr) return carrier_.relay->send_up(message);
  append_frame(up_out_, message, context_.region->generation());
  up_out_.erase(0, context_.region->up(context_.place).write(up_out_));
  tell_receiver(urgent);
  note_backlog();
}

/// Wakes who reads this rank's ring: rank 0's engine, or the relay on another host's leader.
void Control::tell_receiver(bool urgent) const {
  if (!carrier_.wake) {
    if (urgent) context_.region->leader().urgent.store(1);
    return context_.doorbell.ring(0, urgent ? kControl : kRequest);
  }
  if (context_.region->leader().relay.claim() != 0) carrier_.wake();
}

void Control::send_down(const Recipients& to, std::string_view message) {
  if (carrier_.relay != nullptr) carrier_.relay->send_down(to, message);
  rings_->send_down(to, message, &held_);
  note_backlog();
}

void Control::drop_up() {
  up_out_.clear();
  note_backlog();
}

void Control::flush() {
  if (!has_backlog()) return;
  if (!up_out_.empty()) {
    up_out_.erase(0, context_.region->up(context_.place).write(up_out_));
    tell_receiver(true);
  }
  if (rings_) rings_->flush();
  note_backlog();
}

/// Tells the driver, who may be another thread and asleep, that there is something to flush.
void Control::note_backlog() {
  const bool waits = !up_out_.empty() || (rings_ && rings_->has_backlog());
  if (!waits && !held_.empty()) {
    own_.append(held_);
    held_.clear();
    has_own_.store(true);
  }
  backlog_.store(waits);
  if (waits) context_.doorbell.ring(context_.place, kControl);
}

void Control::receive_down(const Receive& receive) {
  if (!has_down()) return;
  if (context_.rank == 0) {
    has_own_.store(false, std::memory_order_relaxed);
    down_in_.swap(own_);
  } else {
    context_.region->down(context_.place).read(down_in_);
  }
  take_frames(down_in_, receive, context_.region->generation());
}

void Control::receive_up(const ReceiveUp& receive) {
  rings_->receive_up(receive);
  if (carrier_.relay == nullptr) return;
  carrier_.relay->receive_up([&](const Reporters& from, std::string_view message) {
    const int first =
        from.hosts.empty() ? from.ranks.at(0) : context_.hosts.leader_of(from.hosts[0].begin);
    take_word_of(first, lost_, [&] { receive(from, message); });
  });
}

bool Control::has_up() const {
  if (!rings_) return false;
  return (carrier_.relay != nullptr && carrier_.relay->has_up()) || rings_->has_up();
}

}  // namespace sirtaki
