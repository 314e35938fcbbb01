#include "engine/execution/launches.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings.h"
#include "python/gil.h"

namespace nb = nanobind;

namespace sirtaki {
namespace {

const Request& base_of(const Launch& launch) { return launch.response->base; }

nb::list shapes_of(const Launch& launch) {
  nb::list shapes;
  for (const Shape& shape : base_of(launch).shapes) shapes.append(nb::tuple(nb::cast(shape)));
  return shapes;
}

}  // namespace

void bind_launches(nb::module_& m) {
  nb::class_<Launch>(m, "Launch")
      .def_ro("number", &Launch::number)
      .def_ro("ranks", &Launch::ranks)
      .def_prop_ro("name", [](const Launch& launch) { return base_of(launch).name; })
      .def_prop_ro("set", [](const Launch& launch) { return base_of(launch).set; })
      .def_prop_ro("kind", [](const Launch& l) { return static_cast<int>(base_of(l).kind); })
      .def_prop_ro("dtype", [](const Launch& l) { return static_cast<int>(base_of(l).dtype); })
      .def_prop_ro("reduce", [](const Launch& l) { return static_cast<int>(base_of(l).reduce); })
      .def_prop_ro("prescale", [](const Launch& launch) { return base_of(launch).scale.pre; })
      .def_prop_ro("postscale", [](const Launch& launch) { return base_of(launch).scale.post; })
      .def_prop_ro("root", [](const Launch& launch) { return base_of(launch).root; })
      .def_prop_ro("shapes", &shapes_of)
      .def_prop_ro("sizes", [](const Launch& launch) { return launch.response->sizes; });

  nb::class_<Launches>(m, "Launches")
      .def("take", &Launches::take, nb::call_guard<WithoutGil>())
      .def("await_end", &Launches::await_end, nb::call_guard<WithoutGil>());
}

}  // namespace sirtaki
