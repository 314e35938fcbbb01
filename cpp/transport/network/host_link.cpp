#include "transport/network/host_link.h"

#include <span>
#include <utility>

#include "transport/memory/doorbell.h"

namespace sirtaki {

HostLink::HostLink(std::unique_ptr<Channel> channel)
    : rank_(channel->rank()),
      channel_(std::move(channel)),
      sealer_(channel_->keys().sending),
      opener_(channel_->keys().receiving) {}

void HostLink::prepare(Sleep& sleep) {
  if (!open()) return;
  listen();
  channel_->prepare(sleep);
}

void HostLink::queue(std::string_view message) {
  if (!open()) return;
  sealer_.append(waiting_, message, generation_);
}

void HostLink::flush() {
  if (!open()) return;
  do {
    if (!channel_->out().idle()) continue;
    if (waiting_.empty()) return;
    sending_.assign(waiting_.begin(), waiting_.end());
    waiting_.clear();
    channel_->send(std::as_bytes(std::span(sending_)));
  } while (channel_->flush());
}

/// Keeps memory registered for what may arrive.
void HostLink::listen() {
  constexpr size_t kBytes = 64 << 10;
  if (!channel_->in().idle()) return;
  coming_.resize(kBytes);
  taken_ = 0;
  channel_->receive(coming_);
}

bool HostLink::receive(const Receive& receive) {
  for (const Early& one : std::exchange(early_, {})) sort(one.generation, one.message, receive);
  if (!open()) return false;
  do {
    listen();
    channel_->fetch();
    take(receive);
  } while (channel_->in().idle());  // more may have arrived
  return !channel_->broken();
}

void HostLink::take(const Receive& receive) {
  const Flow& in = channel_->in();
  const size_t got = coming_.size() - static_cast<size_t>(in.noted - in.moved);
  if (got == taken_) return;
  const size_t from = std::exchange(taken_, got);
  received_.append(reinterpret_cast<const char*>(coming_.data()) + from, got - from);
  opener_.take(received_, [&](uint32_t generation, std::string_view message) {
    sort(generation, message, receive);
  });
}

void HostLink::sort(uint32_t generation, std::string_view message, const Receive& receive) {
  if (generation == generation_) receive(message);
  if (generation > generation_) early_.push_back({generation, std::string(message)});
}

void HostLink::close() {
  if (!open()) return;
  channel_->close();
  channel_.reset();
  waiting_.clear();
}

}  // namespace sirtaki
