#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

/// The gradients of a training step: which of them backward has computed, as often as asked, and
/// the state in which it left them. They lie in buckets, which are complete when all theirs are.
class Arrivals : public std::enable_shared_from_this<Arrivals> {
 public:
  /// `gradient` and `version` are attributes of the framework's: of a parameter, and of its
  /// gradient. Calls `complete(bucket)`, and `extra(bucket, index)` for a gradient too many.
  Arrivals(nb::str gradient, nb::str version, nb::object complete, nb::object extra)
      : gradient_(std::move(gradient)),
        version_(std::move(version)),
        complete_(std::move(complete)),
        extra_(std::move(extra)) {}

  void add(size_t parameters, int passes) {
    const nb::ft_lock_guard lock(mutex_);
    buckets_.push_back({std::vector<Slot>(parameters, Slot{.left = passes}), 0, false});
  }

  /// What backward calls with the parameter. It does not keep this object alive.
  nb::object hook(size_t bucket, size_t index) {
    return nb::cpp_function([weak = weak_from_this(), bucket, index](nb::handle parameter) {
      if (const auto self = weak.lock()) self->arrived(bucket, index, parameter);
    });
  }

  /// Refuses further gradients of a bucket.
  void close(size_t bucket) {
    const nb::ft_lock_guard lock(mutex_);
    buckets_.at(bucket).closed = true;
  }

  /// The gradients of a complete bucket, as backward left them.
  std::vector<nb::object> gradients(size_t bucket) {
    const nb::ft_lock_guard lock(mutex_);
    std::vector<nb::object> all;
    for (const Slot& slot : buckets_.at(bucket).slots) all.push_back(slot.gradient);
    return all;
  }

  /// Which of these parameters of a bucket have another gradient now than backward left them.
  std::vector<size_t> changed(size_t bucket, const nb::list& parameters) {
    std::vector<size_t> found;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto [gradient, version, left] = slot(bucket, i);
      if (!gradient.is_valid() || gradient.is_none()) continue;
      const bool same = parameters[i].attr(gradient_).is(gradient);
      if (!same || version_of(gradient) != version) found.push_back(i);
    }
    return found;
  }

  /// Awaits the next step's gradients, each of this many passes.
  void reset(int passes) {
    std::vector<nb::object> dropped;  // without the lock
    const nb::ft_lock_guard lock(mutex_);
    busy_ = false;
    for (Bucket& bucket : buckets_) {
      bucket.ready = 0;
      bucket.closed = false;
      for (Slot& slot : bucket.slots) {
        if (slot.gradient.is_valid()) dropped.push_back(std::move(slot.gradient));
        slot.left = passes;
      }
    }
  }

  /// Whether backward has computed any gradient since the last `reset`.
  bool busy() {
    const nb::ft_lock_guard lock(mutex_);
    return busy_;
  }

 private:
  struct Slot {
    nb::object gradient{};
    int64_t version = 0;
    int left = 0;
  };
  struct Bucket {
    std::vector<Slot> slots;
    size_t ready;
    bool closed;
  };

  void arrived(size_t number, size_t index, nb::handle parameter) {
    bool extra = false;
    {
      const nb::ft_lock_guard lock(mutex_);
      Slot& slot = buckets_[number].slots[index];
      extra = buckets_[number].closed || slot.left <= 0;
      if (!extra) {
        busy_ = true;
        if (--slot.left > 0) return;
      }
    }
    if (extra) {
      extra_(number, index);
      return;
    }
    nb::object gradient = parameter.attr(gradient_);
    const int64_t version = version_of(gradient);
    bool complete = false;
    {
      const nb::ft_lock_guard lock(mutex_);
      Bucket& bucket = buckets_[number];
      std::swap(bucket.slots[index].gradient, gradient);
      bucket.slots[index].version = version;
      complete = ++bucket.ready == bucket.slots.size();
    }
    if (complete) complete_(number);
  }

  int64_t version_of(const nb::object& gradient) const {
    return gradient.is_none() ? 0 : nb::cast<int64_t>(gradient.attr(version_));
  }

  Slot slot(size_t bucket, size_t index) {
    const nb::ft_lock_guard lock(mutex_);
    return buckets_.at(bucket).slots.at(index);
  }

  nb::ft_mutex mutex_;
  const nb::str gradient_;
  const nb::str version_;
  const nb::object complete_;
  const nb::object extra_;
  std::vector<Bucket> buckets_;
  bool busy_ = false;
};

}  // namespace

void bind_arrivals(nb::module_& m) {
  nb::class_<Arrivals>(m, "Arrivals")
      .def(nb::new_([](nb::str gradient, nb::str version, nb::object complete, nb::object extra) {
             return std::make_shared<Arrivals>(std::move(gradient), std::move(version),
                                               std::move(complete), std::move(extra));
           }),
           "gradient"_a, "version"_a, "complete"_a, "extra"_a)
      .def("add", &Arrivals::add, "parameters"_a, "passes"_a)
      .def("hook", &Arrivals::hook, "bucket"_a, "index"_a)
      .def("close", &Arrivals::close, "bucket"_a)
      .def("gradients", &Arrivals::gradients, "bucket"_a)
      .def("changed", &Arrivals::changed, "bucket"_a, "parameters"_a)
      .def("reset", &Arrivals::reset, "passes"_a)
      .def_prop_ro("busy", &Arrivals::busy);
}

}  // namespace sirtaki
