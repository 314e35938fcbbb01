#include "engine/options.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings.h"

namespace nb = nanobind;

namespace sirtaki {

void bind_options(nb::module_& m) {
  nb::class_<AutotuneOptions>(m, "AutotuneOptions")
      .def_rw("enabled", &AutotuneOptions::enabled)
      .def_rw("log", &AutotuneOptions::log)
      .def_rw("warmup_samples", &AutotuneOptions::warmup_samples)
      .def_rw("steps_per_sample", &AutotuneOptions::steps_per_sample)
      .def_rw("max_samples", &AutotuneOptions::max_samples)
      .def_rw("chunk_fixed", &AutotuneOptions::chunk_fixed)
      .def_rw("fusion_fixed", &AutotuneOptions::fusion_fixed);

  nb::class_<EngineOptions>(m, "EngineOptions")
      .def(nb::init<>())
      .def_rw("fusion_bytes", &EngineOptions::fusion_bytes)
      .def_rw("chunk_bytes", &EngineOptions::chunk_bytes)
      .def_rw("cache_capacity", &EngineOptions::cache_capacity)
      .def_rw("stall_shutdown_seconds", &EngineOptions::stall_shutdown_seconds)
      .def_rw("caller_spin_ns", &EngineOptions::caller_spin_ns)
      .def_rw("engine_spin_ns", &EngineOptions::engine_spin_ns)
      .def_prop_rw(
          "log_level", [](const EngineOptions& o) { return static_cast<int>(o.log_level); },
          [](EngineOptions& o, int level) { o.log_level = static_cast<LogLevel>(level); })
      .def_rw("log_time", &EngineOptions::log_time)
      .def_rw("autotune", &EngineOptions::autotune)
      .def_rw("direct_hosts", &EngineOptions::direct_hosts)
      .def_rw("single_copy", &EngineOptions::single_copy)
      .def_rw("hosts", &EngineOptions::hosts)
      .def_rw("heartbeat", &EngineOptions::heartbeat)
      .def_rw("data_timeout_seconds", &EngineOptions::data_timeout_seconds)
      .def_rw("host_timeout_seconds", &EngineOptions::host_timeout_seconds)
      .def_rw("deadlock_seconds", &EngineOptions::deadlock_seconds)
      .def_rw("has_whole_job", &EngineOptions::has_whole_job)
      .def_rw("silent_seconds", &EngineOptions::silent_seconds);
}

}  // namespace sirtaki
