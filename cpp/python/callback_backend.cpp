#include "python/callback_backend.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "backends/immediate.h"
#include "base/error.h"
#include "collectives/cursor.h"
#include "python/gil.h"
#include "python/kept.h"

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

/// An encoded float32 reduction for backends that cannot decode: a reduction of 16-bit floats, in
/// its own memory. So the results of that backend are rounded as well.
class RoundedSum {
 public:
  /// Throws Error(kInvalid) for a codec whose encoded numbers have no dtype.
  RoundedSum(const Op& op, const Segments& in) : form_(op), op_(op) {
    op_.dtype = form_.codec()->dtype;
    if (op_.dtype == Dtype::kF32) {
      throw Error(ErrorCode::kInvalid,
                  std::string(sirtaki::name(op.codec)) +
                      " can only be summed by the engine's own transports: where these do not "
                      "serve, choose float16, bfloat16 or no compression",
                  Scope::kAllMembers);
    }
    op_.codec = CodecId::kNone;
    op_.longest = form_.bytes(in);
    numbers_ = std::make_unique_for_overwrite<std::byte[]>(op_.longest);
    stream_.add(numbers_.get(), op_.longest);
    Cursor(in, form_).copy_to(numbers_.get(), {0, op_.longest});
  }

  const Op& op() const { return op_; }
  /// The numbers to be reduced in place.
  const Segments& stream() const { return stream_; }
  /// Writes the result to its destination.
  void deliver(const Segments& out) const {
    Cursor(out, form_).copy_from(numbers_.get(), {0, stream_.bytes()});
  }

 private:
  Form form_;
  Op op_;
  std::unique_ptr<std::byte[]> numbers_;
  Segments stream_;
};

/// Calls with the GIL; a Python exception becomes one that needs no GIL to be copied or destroyed.
template <class Call>
void call_python(const std::string& name, Call call) {
  with_gil([&] {
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
    if (found_by_all) throw Error(ErrorCode::kInvalid, text, Scope::kAllMembers);
    throw Error(ErrorCode::kInternal, text);
  });
}

}  // namespace

CallbackBackend::CallbackBackend(nb::object target)
    : target_(std::move(target)), name_(nb::cast<std::string>(target_.attr("name"))) {}

CallbackBackend::~CallbackBackend() { drop(std::move(target_)); }

WorkPtr CallbackBackend::start(const Op& op, const Streams& in, const Streams& out) {
  return immediately([this, &op, &in, &out] {
    if (op.codec == CodecId::kNone) return run(op, in, out);
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
