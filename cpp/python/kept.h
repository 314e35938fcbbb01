#pragma once

#include <nanobind/nanobind.h>

#include "engine/requests/handle.h"

namespace sirtaki {

/// Makes a handle keep a Python object alive. Any thread may end the handle, with or without the
/// GIL: the interpreter's main thread drops the object soon after.
void keep(Handle& handle, nanobind::object object);

/// Drops the object of a handle whose operation is done. Needs the GIL.
void let_go(const Handle& handle);

/// Drops an object, from any thread. A destructor of nanobind's could not be unwound, as this is in
/// a thread that an ending interpreter makes exit.
void drop(nanobind::object&& object);

}  // namespace sirtaki
