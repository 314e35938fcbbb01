#pragma once

#include "engine/engine.h"

// How a thread makes progress for its rank.
namespace sirtaki {

/// Holds the driver's role, which must have been locked, and gives it back.
class Engine::Role {
 public:
  explicit Role(Engine& engine) : engine_(engine) {}
  ~Role() {
    const Rest rest = engine_.rest();
    engine_.driver_.unlock();
    // Not before: the engine thread, rung, would find the role taken and sleep again.
    if (rest.left_over || engine_.has_news(rest)) engine_.endpoint_.doorbell.ring_engine();
    engine_.sleepers_.nudge();
  }
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;

 private:
  Engine& engine_;
};

/// Does work of the driver's; what it throws ends the world.
template <class Work>
void Engine::guard(Work work) {
  try {
    work();
  } catch (const PeerLost& lost) {
    abort_world(lost.rank);  // on all hosts
    fail_all(lost_error(region_->loss()));
  } catch (const Error& error) {
    give_up(error);
  } catch (const std::exception& error) {
    give_up(Error(ErrorCode::kInternal, error.what()));
  }
}

template <class Done>
void Engine::drive(bool caller, Done done) {
  Doorbell& doorbell = endpoint_.doorbell;
  doorbell.drive_as_caller(caller);
  doorbell.wake_up();
  guard([&] {
    doorbell.check_abort();
    while (!done() && !callbacks_.waiting()) {
      const bool moved = pairs_.advance();  // needs no lock
      if (moved && done()) break;
      if (progress() || moved) {
        moves_.store(moves() + 1, std::memory_order_relaxed);  // only the driver writes it
        continue;
      }
      doorbell.check_abort();  // waiting looks for work first, and a backlog is always work
      doorbell.wait([&] { return done() || runner_.is_ready() || has_work(); },
                    [&] { return sleep_for(); });
    }
  });
}

}  // namespace sirtaki
