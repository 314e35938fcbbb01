#pragma once

#include <nanobind/nanobind.h>

namespace sirtaki {

void bind_launches(nanobind::module_& m);

}  // namespace sirtaki
