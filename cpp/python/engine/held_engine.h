#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "engine/engine.h"
#include "python/completions.h"
#include "python/gil.h"

namespace sirtaki {

/// A blocked call checks for signals this often, so that Ctrl-C works.
inline constexpr int64_t kSignalCheckNs = 200'000'000;

/// Python's reference to an engine, which operations of other libraries may outlive. A thread that
/// drops it without shutdown() holds the GIL, which the engine's thread may need to end.
class HeldEngine {
 public:
  explicit HeldEngine(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  ~HeldEngine() {
    const WithoutGil release;
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

/// False if the handle is not done at `limit_ns` on the monotonic clock. Throws what signal
/// handlers raise and, if it may last `for_ever`, the error of a job whose ranks are all blocked.
bool wait_interruptibly(Engine& engine, Handle& handle, int64_t limit_ns = kForever,
                        bool for_ever = true);

/// Throws the error of a failed operation.
void check(const Handle& handle);

/// For a caller that holds `keep` while it waits: after an interrupt the operation keeps it alive.
void wait_and_check(HeldEngine& engine, Handle& handle, nanobind::object& keep);

/// A new handle; once done, it adds its number to `completions`, if there are any.
std::shared_ptr<Handle> handle_for(std::shared_ptr<Completions> completions, int64_t number);

/// A Python caller's request; the engine that receives it consumes it.
struct PythonRequest {
  Submission submission;
  bool waits;
};

/// `keep` is what the memory of the operation belongs to: it lives until that is done.
std::shared_ptr<Handle> submit(HeldEngine& engine, PythonRequest& asked, nanobind::object keep);

/// Methods of the engine's class, one function for each subject.
void bind_messages(nanobind::class_<HeldEngine>& engine);
void bind_states(nanobind::module_& m, nanobind::class_<HeldEngine>& engine);
void bind_timings(nanobind::class_<HeldEngine>& engine);

}  // namespace sirtaki
