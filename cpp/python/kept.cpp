#include "python/kept.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace sirtaki {
namespace {

/// Objects that nobody owns any more, until a thread with the GIL drops them.
class Ownerless {
 public:
  /// The process's. It is never destroyed: engines may end while the process does.
  static Ownerless& instance() {
    static auto* ownerless = new Ownerless;
    return *ownerless;
  }

  void add(PyObject* object) {
    const std::lock_guard lock(mutex_);
    objects_.push_back(object);
    // The interpreter has room for few such calls; the next object tries again.
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

class Kept {
 public:
  explicit Kept(nb::object object) : object_(object.release().ptr()) {}
  ~Kept() {
    if (PyObject* object = take()) Ownerless::instance().add(object);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  /// The object and its reference, once.
  PyObject* take() { return object_.exchange(nullptr); }

 private:
  std::atomic<PyObject*> object_;
};

}  // namespace

std::shared_ptr<void> kept(nb::object object) { return std::make_shared<Kept>(std::move(object)); }

void let_go(const Handle& handle) {
  if (!handle.done() || handle.memory == nullptr) return;
  Py_XDECREF(static_cast<Kept*>(handle.memory.get())->take());
}

}  // namespace sirtaki
