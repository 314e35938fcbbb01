#include "python/completions.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "python/bindings.h"

namespace nb = nanobind;

namespace sirtaki {

void Completions::add(int64_t number) {
  {
    const std::lock_guard lock(mutex_);
    numbers_.push_back(number);
  }
  changed_.notify_one();
}

std::vector<int64_t> Completions::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !numbers_.empty(); });
  return std::exchange(numbers_, {});
}

void Completions::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void bind_completions(nb::module_& m) {
  nb::class_<Completions>(m, "Completions")
      .def(nb::new_([] { return std::make_shared<Completions>(); }))
      .def("take", &Completions::take, nb::call_guard<nb::gil_scoped_release>())
      .def("close", &Completions::close);
}

}  // namespace sirtaki
