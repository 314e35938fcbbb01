#include "engine/ending.h"

#include <algorithm>

#include "engine/callers.h"
#include "engine/observe/rank_state.h"

namespace sirtaki {

Ending::Ending(RankContext& context, Agreement& agreement, Runner& runner, Driver& driver,
               PeerWatch& watch, Launches& launches)
    : context_(context),
      agreement_(agreement),
      runner_(runner),
      driver_(driver),
      watch_(watch),
      launches_(launches) {}

// ---- In good order ----

bool Ending::finish() {
  context_.log.write(LogLevel::kInfo, "leaves the world");
  const bool alone = context_.size == 1;
  if (alone) {
    const auto role = driver_.await_role();
    close();
  } else {
    agreement_.leave();
  }
  driver_.wait(closed_, kForever);
  if (!alone) {
    watch_.stop_unless_relay();  // both threads end at the same time
    driver_.stop();
    context_.region->rank(context_.place).bye.store(1, std::memory_order_release);
    watch_.await_farewell();
  }
  warn_of_leftovers();
  runner_.pairs().stop();
  watch_.stop();
  return !alone && !context_.doorbell.aborted();
}

void Ending::close() {
  const Error over(ErrorCode::kInternal, "the world has been shut down");
  runner_.pairs().end(agreement_.ended().value_or(over));
  context_.region->rank(context_.place).bye.store(1, std::memory_order_release);
  watch_.tell_relay();
  launches_.close();
  closed_.complete();
}

void Ending::warn_of_leftovers() {
  constexpr size_t kMost = 10;  // lines
  const auto messages = runner_.pairs().leftovers();
  for (size_t i = 0; i < std::min(kMost, messages.size()); ++i) {
    const Arrived& message = *messages[i];
    if (message.offered()) continue;  // its sender has the error
    context_.log.write(LogLevel::kWarning,
                       "a message of " + std::to_string(message.bytes) +
                           " bytes was never received: " +
                           describe(false, message.source, message.tag, message.communicator));
  }
  if (messages.size() > kMost) {
    context_.log.write(LogLevel::kWarning, std::to_string(messages.size() - kMost) +
                                               " more messages were never received");
  }
}

// ---- After a loss ----

void Ending::fail(const std::exception& error) {
  const auto* const lost = dynamic_cast<const PeerLost*>(&error);
  if (lost == nullptr) {
    const auto* const own = dynamic_cast<const Error*>(&error);
    return give_up(own != nullptr ? *own : Error(ErrorCode::kInternal, error.what()));
  }
  // On all hosts, and once: it wakes this thread, too, which would never sleep again.
  const bool over = context_.doorbell.aborted() && agreement_.ended();
  if (!over) watch_.abort(Loss{lost->rank});
  fail_all(lost_error(context_.region->loss()));
}

/// Handles an error that stops the driver, whose peers may wait for it in the same operation.
void Ending::give_up(const Error& error) {
  watch_.abort(Loss{context_.rank});
  const std::string own = context_.name_of(context_.rank);
  fail_all(Error(error.code, own + " cannot go on" + phase()).because(error.what()));
}

void Ending::abort(const std::string& why) {
  const Error error(ErrorCode::kInternal, context_.name_of(context_.rank) + ": " + why);
  const bool goes_on = driver_.before_stop([&] {  // then another engine may own the region
    agreement_.end(error);
    watch_.abort(Loss{context_.rank});
  });
  if (!goes_on) return;
  const auto role = driver_.await_role();  // only the driver may drop what is being run
  if (role) fail_all(error);
}

void Ending::fail_all(const Error& error) {
  // Without a lock: this waits for threads that open connections, and these for Python, where a
  // thread may wait for the lock.
  const std::vector<Item> dropped = runner_.drop_batches();
  const Error why = agreement_.end(error);
  runner_.fail(dropped, why);
  for (const auto& entry : agreement_.drop()) runner_.complete(*entry, why);
  launches_.close(why);
  closed_.complete();
}

bool Ending::lose_peer(int rank) {
  constexpr const char* kWhy =
      "its process ended without shutdown(); look for its own error message";
  const auto& bye = context_.region->rank(context_.hosts.place_of(rank)).bye;
  if (bye.load(std::memory_order_acquire) == 0) {
    const RankState state = state_of(*context_.region, context_.hosts, rank, now_ns());
    watch_.abort({rank, -1, std::string(kWhy) + "; last seen " + text_of(state)});
    return true;
  }
  // No rank misses one that has left, but a leader passes on that the world has ended.
  const bool led = rank == context_.hosts.leader_of(context_.hosts.host_of(rank));
  if (!led || hears_end()) return true;
  if (agreement_.has_unread()) return false;  // the driver reads what it left in the ring
  if (!hears_end()) watch_.abort({rank, -1, kWhy});
  return true;
}

// ---- Texts ----

Error Ending::lost_error(const Loss& loss) {
  const std::string own = context_.name_of(context_.rank);
  // The caller may be blocked in another engine of this process.
  if (const std::optional<Error> error = deadlock()) Callers::of_process().end(*error);
  if (loss.code == ErrorCode::kTimeout) return {loss.code, own + ": " + loss.reason};
  // Peers know the two ends of a broken connection; one may be this rank, which is alive.
  const std::string lost = loss.rank == context_.rank
                               ? ": given up by its peers"
                               : ": lost peer " + context_.name_of(loss.rank);
  return Error(ErrorCode::kPeerLost, own + lost + phase()).because(cause_of(loss));
}

std::optional<Error> Ending::deadlock() const {
  if (!context_.doorbell.aborted()) return std::nullopt;
  const Loss loss = context_.region->loss();
  if (!loss.reason.starts_with(kDeadlocked)) return std::nullopt;
  return Error(loss.code, context_.name_of(context_.rank) + ": " + loss.reason);
}

std::string Ending::cause_of(const Loss& loss) const {
  const auto known = [&links = context_.links](int rank) {
    return links.why_broken ? links.why_broken(rank) : std::string();
  };
  if (loss.reporter >= 0) {
    // This rank, at the other end of the connection, may know more than the reporter.
    const std::string own = loss.rank == context_.rank ? known(loss.reporter) : "";
    return "the connection between " + context_.name_of(loss.reporter) + " and " +
           context_.name_of(loss.rank) + " broke\n  because " + (own.empty() ? loss.reason : own);
  }
  if (!loss.reason.empty()) return loss.reason;
  const std::string why = known(loss.rank);
  if (!why.empty()) return "the connection to it broke\n  because " + why;
  return "its process ended without shutdown(), " +
         std::string(context_.hosts.hosts() > 1 ? "its host was cut off, stopped or overloaded, "
                                                : "") +
         "or it could not go on; look for its own error message";
}

/// What the engine is doing, as the end of an error message.
std::string Ending::phase() {
  const std::string text = runner_.describe();
  return text.empty() ? agreement_.phase() : " during " + text;
}

}  // namespace sirtaki
