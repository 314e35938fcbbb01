#include <algorithm>

#include "engine/driving.h"

// Messages from one rank to another.
namespace sirtaki {

Pairs::Events Engine::pairs_events() {
  Pairs::Events events;
  events.done = [this](const std::shared_ptr<void>& owner, const Message& message,
                       const std::optional<Error>& error) {
    auto handle = std::static_pointer_cast<Handle>(owner);
    handle->message = message;
    if (handle->complete(error) && handle->calls_back()) callbacks_.add(std::move(handle));
  };
  events.invite = [this](int rank) { invite(rank); };
  return events;
}

std::shared_ptr<Handle> Engine::start(Transfer transfer) {
  std::shared_ptr<Handle> handle = handle_of(transfer);
  begin(std::move(transfer), [] {});
  callbacks_.run();
  return handle;
}

std::shared_ptr<Handle> Engine::start_and_wait(Transfer transfer, int64_t limit_ns) {
  std::shared_ptr<Handle> handle = handle_of(transfer);
  begin(std::move(transfer), [&] {
    if (!handle->done()) drive(true, [&] { return handle->done() || now_ns() >= limit_ns; });
  });
  wait(*handle, limit_ns);
  return handle;
}

void Engine::withdraw(const std::shared_ptr<Handle>& handle) {
  if (mark_.forked() || handle->done()) return;
  Transfer transfer;
  transfer.withdraws = true;
  transfer.owner = handle;
  begin(std::move(transfer), [] {});
  callbacks_.run();
}

/// Of a transfer that can be.
std::shared_ptr<Handle> Engine::handle_of(Transfer& transfer) {
  require_possible(transfer);
  Callers::of_process().note_call();
  if (transfer.owner == nullptr) transfer.owner = std::make_shared<Handle>();
  return std::static_pointer_cast<Handle>(transfer.owner);
}

/// Here, and `then` goes on as the driver; or in the thread that drives now.
template <class Then>
void Engine::begin(Transfer transfer, Then then) {
  if (try_role()) {
    const Role role(*this);
    guard([&] {
      pairs_.add(std::move(transfer));
      endpoint_.doorbell.check_abort();
    });
    then();
  } else if (stop_.load()) {
    const Error error(ErrorCode::kInternal, "the world has been shut down");
    pairs_events().done(transfer.owner, {}, error);
  } else {
    pairs_.post(std::move(transfer));
    endpoint_.doorbell.ring_own(kControl);
  }
}

void Engine::require_possible(const Transfer& transfer) {
  require_own_process();
  const std::string why = impossible(transfer);
  if (why.empty()) return;
  throw Error(ErrorCode::kInvalid,
              rank_text(rank_) + " cannot " + sirtaki::describe(transfer) + ": " + why);
}

/// Why there is no such transfer; empty: there is.
std::string Engine::impossible(const Transfer& transfer) {
  const int peer = transfer.peer;
  if (transfer.tag < 0) return "a tag is not negative";
  const bool any = !transfer.sends && peer == kAnySource;
  if (!any && (peer < 0 || peer >= size_)) {
    return "a world of " + std::to_string(size_) + " has no such rank";
  }
  if (transfer.communicator == 0) return "";
  const std::string set = "process set " + std::to_string(transfer.communicator);
  const std::lock_guard lock(mutex_);
  if (!sets_.contains(transfer.communicator)) return "there is no " + set;
  if (sets_.index(transfer.communicator, rank_) < 0) return "it is not a member of " + set;
  if (any || sets_.index(transfer.communicator, peer) >= 0) return "";
  return "rank " + std::to_string(peer) + " is not a member of " + set;
}

/// Asks a rank of another host to connect, by way of rank 0.
void Engine::invite(int rank) {
  std::string message;
  Writer(message).put(Up::kMeet).put(static_cast<int32_t>(rank));
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  if (sequencer_ != nullptr) {
    sequencer_->receive(0, message, now_ns());
  } else {
    control_.send_up(message, true);
  }
}

void Engine::receive_meet(int rank) {
  if (rank < 0 || rank >= size_ || hosts_.host_of(rank) == hosts_.host_of(rank_)) {
    throw Error(ErrorCode::kInternal,
                "rank " + std::to_string(rank) + " is on no other host to connect to");
  }
  pairs_.meet(rank);
}

/// The world is over in good order.
void Engine::end_pairs() {
  std::optional<Error> why;
  {
    const std::lock_guard lock(mutex_);
    why = ended_;
  }
  pairs_.end(why.value_or(Error(ErrorCode::kInternal, "the world has been shut down")));
}

void Engine::warn_of_leftovers() {
  constexpr size_t kMost = 10;  // lines
  const auto messages = pairs_.leftovers();
  for (size_t i = 0; i < std::min(kMost, messages.size()); ++i) {
    const Arrived& message = *messages[i];
    if (message.offered) continue;  // its sender has an error
    log_.write(LogLevel::kWarning,
               "a message of " + std::to_string(message.bytes) + " bytes was never received: " +
                   describe(false, message.source, message.tag, message.communicator));
  }
  if (messages.size() > kMost) {
    log_.write(LogLevel::kWarning,
               std::to_string(messages.size() - kMost) + " more messages were never received");
  }
}

}  // namespace sirtaki
