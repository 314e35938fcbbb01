#include "python/callback_backend.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <utility>

#include "backends/immediate.h"
#include "base/error.h"
#include "collectives/rounded_sum.h"

namespace nb = nanobind;

namespace sirtaki {
namespace {

nb::list as_list(const Streams& streams) {
  nb::list result;
  for (const Segments& stream : streams) {
    nb::list segments;
    for (const Segment& segment : stream.list()) {
      segments.append(
          nb::make_tuple(reinterpret_cast<uintptr_t>(segment.data), nb::int_(segment.bytes)));
    }
    result.append(std::move(segments));
  }
  return result;
}

/// Calls with the GIL; what Python raises becomes an exception that needs no GIL to live or die.
template <class Call>
void call_python(const std::string& name, Call call) {
  const nb::gil_scoped_acquire gil;
  std::string text;
  bool found_by_all = false;
  try {
    call();
    return;
  } catch (nb::python_error& error) {
    found_by_all = error.matches(PyExc_ValueError);
    const nb::str type = nb::str(error.type().attr("__name__"));
    text = name + ": " + type.c_str() + ": " + nb::str(error.value()).c_str();
  }
  if (found_by_all) throw Error(ErrorCode::kInvalid, text);
  // No Error: the engine takes that for one that all members have.
  throw std::runtime_error(text);
}

}  // namespace

CallbackBackend::CallbackBackend(nb::object target)
    : target_(std::move(target)), name_(nb::cast<std::string>(target_.attr("name"))) {}

CallbackBackend::~CallbackBackend() {
  const nb::gil_scoped_acquire gil;
  target_.reset();
}

WorkPtr CallbackBackend::start(const Op& op, const Streams& in, const Streams& out) {
  return immediately([this, &op, &in, &out] {
    if (op.wire == WireFormat::kOwn) return run(op, in, out);
    const RoundedSum sum(op, in[0]);
    run(sum.op(), {sum.stream()}, {sum.stream()});
    sum.deliver(out[0]);
  });
}

void CallbackBackend::run(const Op& op, const Streams& in, const Streams& out) {
  call_python(name_, [&] {
    target_.attr("run")(static_cast<int>(op.kind), static_cast<int>(op.dtype),
                        static_cast<int>(op.reduce), op.scale.pre, op.scale.post, op.root, op.set,
                        as_list(in), as_list(out));
  });
}

WorkPtr CallbackBackend::add_set(int32_t set, const std::vector<int>& ranks) {
  return immediately(
      [this, set, ranks] { call_python(name_, [&] { target_.attr("add_set")(set, ranks); }); });
}

WorkPtr CallbackBackend::remove_set(int32_t set) {
  return immediately([this, set] { call_python(name_, [&] { target_.attr("remove_set")(set); }); });
}

}  // namespace sirtaki
