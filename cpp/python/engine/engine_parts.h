#pragma once

#include <nanobind/nanobind.h>

#include "python/engine/held_engine.h"

namespace sirtaki {

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
