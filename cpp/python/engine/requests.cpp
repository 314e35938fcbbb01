#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "collectives/kinds.h"
#include "python/bindings.h"
#include "python/engine/held_engine.h"
#include "python/kept.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

template <class Pointer>
std::vector<Pointer> pointers(const std::vector<uintptr_t>& addresses) {
  std::vector<Pointer> result;
  result.reserve(addresses.size());
  for (const uintptr_t address : addresses) result.push_back(reinterpret_cast<Pointer>(address));
  return result;
}

/// Address and size.
using Memory = std::pair<uintptr_t, size_t>;

/// The caller's memory for results whose size the ranks agree on, if the caller also knows it.
Allocate memory_of(std::vector<Memory> results) {
  return [results = std::move(results)](size_t tensor, const Shape&, size_t bytes) {
    const auto [address, expected] = results.at(tensor);
    if (bytes == expected) return reinterpret_cast<void*>(address);
    throw invalid("the tensor given for it has " + std::to_string(expected) + " bytes");
  };
}

void make_request(PythonRequest* made, int kind, std::string name, int dtype, int reduce, int root,
                  int set, double prescale, double postscale, int codec, std::vector<Shape> shapes,
                  std::vector<int64_t> splits, const std::vector<uintptr_t>& inputs,
                  const std::vector<uintptr_t>& outputs, std::vector<Memory> results, bool waits,
                  std::shared_ptr<Completions> completions, int64_t number) {
  Request request;
  request.kind = static_cast<Kind>(kind);
  request.dtype = static_cast<Dtype>(dtype);
  request.reduce = static_cast<ReduceOp>(reduce);
  request.scale = {prescale, postscale};
  request.codec = static_cast<CodecId>(codec);
  request.root = root;
  request.set = set;
  request.name = std::move(name);
  request.shapes = std::move(shapes);
  request.splits = std::move(splits);
  new (made) PythonRequest{
      {std::move(request), pointers<const void*>(inputs), pointers<void*>(outputs)}, waits};
  Submission& submission = made->submission;
  for (const auto& [address, bytes] : results) {
    submission.results.push_back({reinterpret_cast<std::byte*>(address), bytes});
  }
  if (!results.empty()) submission.allocate = memory_of(std::move(results));
  submission.handle = handle_for(std::move(completions), number);
}

void launch_as(PythonRequest& asked, int64_t number) {
  asked.submission.request.device = 1;
  asked.submission.number = number;
}

/// Name and process set; None if there is no name.
nb::object key_of_request(const PythonRequest& asked) {
  const Request& request = asked.submission.request;
  if (request.name.empty()) return nb::none();
  return nb::make_tuple(request.name, request.set);
}

/// The outputs of a finished operation: (bytes, shape) for each, sharing memory with the engine's
/// buffer.
nb::list outputs_of(const Handle& handle) {
  nb::list result;
  for (const std::shared_ptr<Buffer>& buffer : handle.outputs) {
    auto* owner = new std::shared_ptr<Buffer>(buffer);
    nb::capsule capsule(owner,
                        [](void* p) noexcept { delete static_cast<std::shared_ptr<Buffer>*>(p); });
    Bytes bytes(buffer->data(), {buffer->bytes()}, capsule);
    nb::list shape;
    for (const int64_t extent : buffer->shape()) shape.append(extent);
    result.append(nb::make_tuple(bytes, nb::tuple(shape)));
  }
  return result;
}

bool done(const Handle& handle) {
  let_go(handle);
  return handle.done();
}

}  // namespace

void bind_requests(nb::module_& m) {
  static_assert(OwnedWithoutPython<Completions> && OwnedWithoutPython<Handle>);
  nb::class_<Completions>(m, "Completions")
      .def(nb::new_([] { return std::make_shared<Completions>(); }))
      .def("take", &Completions::take, nb::call_guard<WithoutGil>())
      .def("close", &Completions::close);

  nb::class_<Handle>(m, "Handle")
      .def("done", &done)
      .def("check", &check, "Raises what the operation has failed with.")
      .def("outputs", &outputs_of)
      .def_ro("received_splits", &Handle::received_splits)
      .def_ro("value", &Handle::value)
      .def_prop_ro("source", [](const Handle& handle) { return handle.message.source; })
      .def_prop_ro("bytes", [](const Handle& handle) { return handle.message.bytes; });

  nb::class_<PythonRequest>(m, "Request")
      .def("__init__", &make_request, "kind"_a, nb::kw_only(), "name"_a = "",
           "dtype"_a = static_cast<int>(Dtype::kU8), "reduce"_a = static_cast<int>(ReduceOp::kSum),
           "root"_a = 0, "set"_a = 0, "prescale"_a = 1.0, "postscale"_a = 1.0,
           "codec"_a = static_cast<int>(CodecId::kNone), "shapes"_a = std::vector<Shape>(),
           "splits"_a = std::vector<int64_t>(), "inputs"_a = std::vector<uintptr_t>(),
           "outputs"_a = std::vector<uintptr_t>(), "results"_a = std::vector<Memory>(),
           "waits"_a = false, "completions"_a.none() = std::shared_ptr<Completions>(),
           "number"_a = int64_t{0})
      .def("launch_as", &launch_as, "number"_a,
           "Marks an operation that its caller launches, on an accelerator: see `launches`.")
      .def_ro("waits", &PythonRequest::waits)
      .def_prop_ro("key", &key_of_request);
}

}  // namespace sirtaki
