#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "engine/engine.h"
#include "python/completions.h"

namespace sirtaki {

/// A blocked call looks for signals this often, so that Ctrl-C works.
inline constexpr int64_t kSignalCheckNs = 200'000'000;

/// Python's share in an engine; what other libraries have under way in it may outlive it. Whoever
/// drops it without shutdown() holds the GIL, which the engine's thread may need to end.
class HeldEngine {
 public:
  explicit HeldEngine(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  ~HeldEngine() {
    const nanobind::gil_scoped_release release;
    engine_->shutdown();
    engine_.reset();
  }
  HeldEngine(const HeldEngine&) = delete;
  HeldEngine& operator=(const HeldEngine&) = delete;

  Engine* operator->() const { return engine_.get(); }
  const std::shared_ptr<Engine>& shared() const { return engine_; }

 private:
  std::shared_ptr<Engine> engine_;
};

/// False if the handle is not done at `limit_ns` on the monotonic clock. Throws what handlers of
/// signals raise, and where it may be `for_ever`, what ends the job when all its ranks are blocked.
bool wait_interruptibly(HeldEngine& engine, Handle& handle, int64_t limit_ns = kForever,
                        bool for_ever = true);

/// Throws what the operation has failed with.
void check(const Handle& handle);

/// For a caller who holds `keep` while it waits: the operation keeps it when that is interrupted.
void wait_and_check(HeldEngine& engine, Handle& handle, nanobind::object& keep);

/// One whose number is added to `completions`, if there are any, when it is done.
std::shared_ptr<Handle> handle_for(std::shared_ptr<Completions> completions, int64_t number);

/// What a Python caller wants done; used up by the engine that it is given to.
struct PythonRequest {
  Submission submission;
  bool waits;
};

/// Methods of the engine's class, one function for each subject.
void bind_messages(nanobind::class_<HeldEngine>& engine);
void bind_states(nanobind::module_& m, nanobind::class_<HeldEngine>& engine);
void bind_timings(nanobind::class_<HeldEngine>& engine);

}  // namespace sirtaki
