#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "engine/requests/handle.h"

namespace sirtaki {

/// A Python object for an operation to keep. Its last owner may be any thread, with or without the
/// GIL: an object that is let go without it is dropped soon after, by the interpreter's main
/// thread.
std::shared_ptr<void> kept(nanobind::object object);

/// Drops what a handle of ours keeps, if its operation is done. Needs the GIL.
void let_go(const Handle& handle);

}  // namespace sirtaki
