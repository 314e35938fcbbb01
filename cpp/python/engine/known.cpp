#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "engine/requests/checks.h"
#include "python/bindings.h"
#include "python/engine/claims.h"
#include "python/engine/held_engine.h"
#include "python/engine/places.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

/// An operation in place that is started again and again, on tensors of the same shapes and dtype.
class Known {
 public:
  Known(const PythonRequest& first, nb::object places, nb::sequence tensors)
      : request_(first.submission.request),
        holder_(std::move(places)),
        places_(nb::cast<const Places&>(holder_)) {
    const auto found = places_.find(tensors[0]);
    if (!found || !malformed(request_).empty()) return;
    element_ = found->element;
    Writer writer(encoded_);
    request_.encode(writer);
  }

  /// None, without any effect, unless these tensors are like the first ones.
  std::shared_ptr<Handle> submit(HeldEngine& engine, nb::sequence tensors, bool waits) const {
    PythonRequest asked{{}, waits};
    Submission& submission = asked.submission;
    if (!find(tensors, submission)) return nullptr;
    submission.request = request_;
    submission.encoded = encoded_;
    submission.handle = std::make_shared<Handle>();
    try {
      return sirtaki::submit(engine, asked, std::move(tensors));
    } catch (const Overlap&) {
      return nullptr;
    }
  }

 private:
  bool find(const nb::sequence& tensors, Submission& submission) const {
    const size_t count = nb::len(tensors);
    if (count != request_.shapes.size()) return false;
    submission.inputs.reserve(count);
    submission.outputs.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const auto found = places_.find(tensors[i]);
      const Shape& shape = request_.shapes[i];
      if (!found || found->element != element_ ||
          !std::equal(shape.begin(), shape.end(), found->shape, found->shape + found->dimensions)) {
        return false;
      }
      submission.inputs.push_back(found->data);
      submission.outputs.push_back(found->data);
    }
    return true;
  }

  Request request_;
  std::string encoded_;
  nb::object holder_;
  const Places& places_;
  DlTensor::Element element_{};
};

}  // namespace

void bind_known(nb::module_& m) {
  nb::class_<Places>(m, "Places")
      .def(nb::init<nb::tuple, nb::object, nb::object>(), "classes"_a, "negated"_a, "conjugated"_a);
  nb::class_<Known>(m, "Known")
      .def(nb::init<const PythonRequest&, nb::object, nb::sequence>(), "first"_a, "places"_a,
           "tensors"_a)
      .def("submit", &Known::submit, "engine"_a, "tensors"_a, "waits"_a);
}

}  // namespace sirtaki
