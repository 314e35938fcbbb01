#include "python/engine/held_engine.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "python/kept.h"

namespace nb = nanobind;

namespace sirtaki {

bool wait_interruptibly(Engine& engine, Handle& handle, int64_t limit_ns, bool for_ever) {
  if (handle.done()) engine.note_wait();
  Callers::Wait waiting(engine, handle);
  while (!handle.done()) {
    {
      const WithoutGil release;
      if (engine.wait(handle, std::min(limit_ns, now_ns() + kSignalCheckNs))) break;
      if (for_ever) waiting.goes_on(now_ns());
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (now_ns() >= limit_ns) return false;
  }
  let_go(handle);
  return true;
}

void check(const Handle& handle) {
  if (!handle.done() || !handle.error()) return;
  Callers::of_process().check_failed();
  throw *handle.error();
}

void wait_and_check(HeldEngine& engine, Handle& handle, nb::object& keep) {
  try {
    wait_interruptibly(*engine.shared(), handle);
  } catch (...) {
    sirtaki::keep(handle, std::move(keep));
    throw;
  }
  check(handle);
}

std::shared_ptr<Handle> handle_for(std::shared_ptr<Completions> completions, int64_t number) {
  if (completions == nullptr) return std::make_shared<Handle>();
  return std::make_shared<Handle>(
      [completions = std::move(completions), number](const Handle&) { completions->add(number); });
}

}  // namespace sirtaki
