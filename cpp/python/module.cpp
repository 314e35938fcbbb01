#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "python/bindings.h"
#include "python/engine/claims.h"
#include "transport/host_tree.h"
#include "transport/memory/region.h"

namespace nb = nanobind;

namespace sirtaki {
namespace {

const char* class_of(ErrorCode code) {
  if (code == ErrorCode::kPeerLost) return "PeerLostError";
  if (code == ErrorCode::kTimeout) return "CollectiveTimeoutError";
  return code == ErrorCode::kMismatch ? "MismatchError" : "HorovodInternalError";
}

void raise_ours(const char* name, const Error& error) {
  const nb::object type = nb::module_::import_("sirtaki.core.errors").attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

void raise_in_python(const Error& error) {
  if (error.code != ErrorCode::kInvalid) return raise_ours(class_of(error.code), error);
  PyErr_SetString(PyExc_ValueError, error.what());
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The core of Sirtaki: moves bytes, knows no framework.";
  nb::set_leak_warnings(false);  // a daemon thread in a call at the end keeps its objects
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Overlap& error) {
      raise_ours("OverlapError", error);
    } catch (const Error& error) {
      raise_in_python(error);
    }
  });
  m.def(
      "address",
      [](const nb::ndarray<nb::ro>& array) { return reinterpret_cast<uintptr_t>(array.data()); },
      nb::arg("array"), "Where the elements of an array are; faster than numpy's own ways.");
  m.def("region_bytes", &Region::bytes, nb::arg("ranks"),
        "Bytes of shared memory that the ranks of a host need together.");
  m.attr("slot_bytes") = Region::kSlotBytes;
  m.def(
      "linked_hosts", [](int hosts, int host) { return HostTree(hosts).neighbours_of(host); },
      nb::arg("hosts"), nb::arg("host"),
      "The hosts with whose leaders a host's leader is connected for control messages.");
  bind_arrivals(m);
  bind_launches(m);
  bind_options(m);
  bind_requests(m);
  bind_known(m);
  bind_links(m);
  bind_engine(m);
  bind_heap(m);
  bind_math(m);
}

}  // namespace sirtaki
