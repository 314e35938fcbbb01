#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "base/clock.h"
#include "python/engine/held_engine.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

/// The seconds of each of `repeats` runs of `work`.
template <class Work>
std::vector<double> seconds_of(int repeats, Work work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const int64_t begun = now_ns();
    work();
    seconds.push_back(static_cast<double>(now_ns() - begun) * 1e-9);
  }
  return seconds;
}

/// Times `repeats` messages of `bytes` at `address` to another rank and back, which does the same;
/// the lower rank begins.
std::vector<double> time_round_trip(HeldEngine& engine, int rank, uintptr_t address, size_t bytes,
                                    int repeats) {
  const WithoutGil release;
  const auto move = [&](bool sends) {
    const auto handle =
        engine->start_and_wait({sends, rank, 0, 0, reinterpret_cast<std::byte*>(address), bytes});
    if (handle->error()) throw *handle->error();
  };
  const bool begins = engine->rank() < rank;
  return seconds_of(repeats, [&] {
    move(begins);
    move(!begins);
  });
}

/// Times `repeats` in-place sums of `count` float32 at `address`, without the engine's matching.
std::vector<double> time_allreduce(HeldEngine& engine, uintptr_t address, size_t count,
                                   int repeats) {
  const WithoutGil release;
  Op op;
  op.kind = Kind::kAllreduce;
  op.dtype = Dtype::kF32;
  Streams stream(1);
  stream[0].add(reinterpret_cast<void*>(address), count * sizeof(float));
  op.longest = stream[0].bytes();
  std::vector<double> seconds;
  engine->with_backend([&](Backend& backend, const Doorbell& doorbell) {
    seconds = seconds_of(repeats, [&] { finish(*backend.start(op, stream, stream), doorbell); });
  });
  return seconds;
}

/// Times `repeats` in-place sums of `count` float32 at `address`, submitted and awaited like any
/// operation.
std::vector<double> time_submit(HeldEngine& engine, uintptr_t address, size_t count, int repeats) {
  const WithoutGil release;
  auto* data = reinterpret_cast<float*>(address);
  return seconds_of(repeats, [&] {
    Request request;
    request.kind = Kind::kAllreduce;
    request.dtype = Dtype::kF32;
    request.shapes = {{static_cast<int64_t>(count)}};
    const auto handle = engine->submit({std::move(request), {data}, {data}});
    engine->wait(*handle);
    if (handle->error()) throw *handle->error();
  });
}

}  // namespace

void bind_timings(nb::class_<HeldEngine>& engine) {
  engine.def("time_allreduce", &time_allreduce, "address"_a, "count"_a, "repeats"_a)
      .def("time_submit", &time_submit, "address"_a, "count"_a, "repeats"_a)
      .def("time_round_trip", &time_round_trip, "rank"_a, "address"_a, "bytes"_a, "repeats"_a);
}

}  // namespace sirtaki
