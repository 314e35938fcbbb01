#include "python/kept.h"

#include <mutex>
#include <utility>
#include <vector>

#include "python/gil.h"

namespace nb = nanobind;

namespace sirtaki {
namespace {

/// Objects without an owner, until a thread with the GIL drops them.
class Ownerless {
 public:
  /// The instance of the process. It is never destroyed: engines may outlive static objects.
  static Ownerless& instance() {
    static auto* ownerless = new Ownerless;
    return *ownerless;
  }

  void add(PyObject* object) {
    const std::lock_guard lock(mutex_);
    objects_.push_back(object);
    // The interpreter has room for only a few such calls; the next object tries again.
    if (!called_) called_ = Py_AddPendingCall(drop_all, nullptr) == 0;
  }

 private:
  static int drop_all(void*) {
    for (PyObject* object : instance().take()) Py_DECREF(object);
    return 0;
  }

  std::vector<PyObject*> take() {
    const std::lock_guard lock(mutex_);
    called_ = false;
    return std::exchange(objects_, {});
  }

  std::mutex mutex_;
  std::vector<PyObject*> objects_;
  bool called_ = false;
};

}  // namespace

void keep(Handle& handle, nb::object object) {
  handle.keep(object.release().ptr(),
              [](void* owner) { Ownerless::instance().add(static_cast<PyObject*>(owner)); });
}

void drop(nb::object&& object) {
  with_gil([owned = object.release().ptr()] { Py_XDECREF(owned); });
}

void let_go(const Handle& handle) {
  if (handle.done()) Py_XDECREF(static_cast<PyObject*>(handle.take_owner()));
}

}  // namespace sirtaki
