#include "engine/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/clock.h"
#include "ffi/table.h"
#include "python/bindings.h"
#include "python/callback_backend.h"
#include "python/engine/claims.h"
#include "python/engine/held_engine.h"
#include "python/kept.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

std::unique_ptr<HeldEngine> make_engine(const std::shared_ptr<Links>& links,
                                        const EngineOptions& options, const nb::object& backend) {
  Engine::MakeBackend make_backend = Engine::make_native;
  if (!backend.is_none()) {
    make_backend = [&](Endpoint&, const HostMap&, const MakeNetwork&) {
      return std::make_unique<CallbackBackend>(backend);
    };
  }
  return std::make_unique<HeldEngine>(Engine::share(
      std::make_unique<Engine>(links->rank(), links->map(), links->region(), Links::lend(links),
                               links->network(), options, make_backend)));
}

/// Operations that share memory run one after another, in the order of their submission.
void await_others(const Uses& uses) {
  for (;;) {
    const Claims::Claim earlier = Claims::of_process().before(uses);
    const auto handle = earlier.handle.lock();
    const auto engine = earlier.engine.lock();
    if (handle == nullptr || engine == nullptr) return;
    wait_interruptibly(*engine, *handle);
  }
}

bool wait(HeldEngine& engine, Handle& handle, std::optional<double> timeout, bool for_ever) {
  const int64_t limit = timeout ? now_ns() + ns_of(*timeout) : kForever;
  return wait_interruptibly(*engine.shared(), handle, limit, for_ever);
}

/// A method of the engine, called without the GIL.
template <class Result, class... Given>
auto without_gil(Result (Engine::*method)(Given...)) {
  return [method](HeldEngine& engine, Given... given) -> Result {
    const WithoutGil release;
    return (engine.shared().get()->*method)(given...);
  };
}

}  // namespace

std::shared_ptr<Handle> submit(HeldEngine& engine, PythonRequest& asked, nb::object keep) {
  std::shared_ptr<Handle> handle = asked.submission.handle;
  if (handle == nullptr) throw nb::value_error("the request has been submitted already");
  Uses uses = uses_of(asked.submission, *engine.shared());
  await_others(uses);
  if (!asked.waits) {
    sirtaki::keep(*handle, std::move(keep));
    {
      const WithoutGil release;
      engine->submit(std::move(asked.submission));
    }
    Claims::of_process().add({std::move(uses), handle, engine.shared()});
    return handle;
  }
  {
    const WithoutGil release;
    const Exposed blocked = engine->exposed();
    engine->submit_and_wait(std::move(asked.submission), now_ns() + kSignalCheckNs);
  }
  wait_and_check(engine, *handle, keep);
  return handle;
}

void bind_engine(nb::module_& m) {
  nb::class_<HeldEngine> engine(m, "Engine");
  engine
      .def(nb::new_(&make_engine), "links"_a, "options"_a, "backend"_a = nb::none(),
           "`backend`, if given, moves the data (see callback_backend.h): shut down before letting "
           "go.")
      .def("submit", &submit, "request"_a, "keep"_a.none(),
           "`keep` is what the memory of the operation belongs to: it lives until that is done.")
      .def("wait", &wait, "handle"_a, "timeout"_a = nb::none(), "for_ever"_a = true,
           "`for_ever` says that the timeout, if any, is one that nobody counts on.")
      .def("finish", without_gil(&Engine::finish))
      .def("shutdown", without_gil(&Engine::shutdown))
      .def("abort", without_gil(&Engine::abort), "why"_a)
      .def("start_timeline", without_gil(&Engine::start_timeline), "path"_a, "mark_cycles"_a)
      .def("stop_timeline", without_gil(&Engine::stop_timeline))
      .def("process_sets", without_gil(&Engine::process_sets))
      .def_prop_ro("launches", [](HeldEngine& engine) { return engine->launches(); })
      .def(
          "direct",
          [](HeldEngine& engine) -> std::pair<uint64_t, uint64_t> {
            const PeerHeaps* heaps = engine->heaps();
            if (heaps == nullptr) return {0, 0};
            return {heaps->operations(), heaps->moved()};
          },
          "How many operations moved bytes of shared heaps directly, and how many bytes.")
      .def("backend_name", [](HeldEngine& engine) { return engine->backend_name(); })
      .def("require_own_process", [](HeldEngine& engine) { engine->require_own_process(); });
  bind_messages(engine);
  bind_states(m, engine);
  bind_timings(engine);

  m.def(
      "set_current_engine",
      [](const HeldEngine* engine) {
        set_current_engine(engine == nullptr ? nullptr : engine->shared());
      },
      "engine"_a.none());
  m.def("ffi_address", [] { return reinterpret_cast<uintptr_t>(&ffi_table()); });
  m.def("ffi_capsule", [] { return nb::capsule(&ffi_table(), "sirtaki.ffi"); });
}

}  // namespace sirtaki
