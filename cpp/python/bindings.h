#pragma once

#include <nanobind/nanobind.h>

namespace sirtaki {

/// One function for each file of bindings.
void bind_arrivals(nanobind::module_& m);
void bind_engine(nanobind::module_& m);
void bind_heap(nanobind::module_& m);
void bind_known(nanobind::module_& m);
void bind_launches(nanobind::module_& m);
void bind_links(nanobind::module_& m);
void bind_math(nanobind::module_& m);
void bind_options(nanobind::module_& m);
void bind_requests(nanobind::module_& m);

}  // namespace sirtaki
