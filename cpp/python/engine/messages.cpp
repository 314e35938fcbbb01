#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include "base/clock.h"
#include "pairs/message.h"
#include "python/engine/held_engine.h"
#include "python/kept.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

template <bool kSends>
Transfer transfer_of(uintptr_t address, size_t bytes, int rank, int64_t tag, int set) {
  return {kSends, rank, set, tag, reinterpret_cast<std::byte*>(address), bytes};
}

template <bool kSends>
std::shared_ptr<Handle> start(HeldEngine& engine, uintptr_t address, size_t bytes, int rank,
                              int64_t tag, int set, nb::object keep,
                              std::shared_ptr<Completions> completions, int64_t number) {
  Transfer transfer = transfer_of<kSends>(address, bytes, rank, tag, set);
  std::shared_ptr<Handle> handle = handle_for(std::move(completions), number);
  sirtaki::keep(*handle, std::move(keep));
  transfer.owner = handle;
  const WithoutGil release;
  engine->start(std::move(transfer));
  return handle;
}

/// An interrupted caller gives up its message, because nobody else has the handle. Returns the
/// source of a message that it receives, and its size.
template <bool kSends>
auto start_and_wait(HeldEngine& engine, uintptr_t address, size_t bytes, int rank, int64_t tag,
                    int set, nb::object keep) {
  std::shared_ptr<Handle> handle;
  {
    const WithoutGil release;
    handle = engine->start_and_wait(transfer_of<kSends>(address, bytes, rank, tag, set),
                                    now_ns() + kSignalCheckNs);
  }
  try {
    wait_and_check(engine, *handle, keep);
  } catch (...) {
    engine->withdraw(handle);
    throw;
  }
  if constexpr (!kSends) {
    return std::pair<int, size_t>(handle->message.source, handle->message.bytes);
  }
}

}  // namespace

void bind_messages(nb::class_<HeldEngine>& engine) {
  engine
      .def("send", &start<true>, "address"_a, "bytes"_a, "rank"_a, "tag"_a, "set"_a,
           "keep"_a.none(), "completions"_a.none() = std::shared_ptr<Completions>(),
           "number"_a = int64_t{0})
      .def("send_and_wait", &start_and_wait<true>, "address"_a, "bytes"_a, "rank"_a, "tag"_a,
           "set"_a, "keep"_a.none())
      .def("receive", &start<false>, "address"_a, "bytes"_a, "rank"_a, "tag"_a, "set"_a,
           "keep"_a.none(), "completions"_a.none() = std::shared_ptr<Completions>(),
           "number"_a = int64_t{0})
      .def("receive_and_wait", &start_and_wait<false>, "address"_a, "bytes"_a, "rank"_a, "tag"_a,
           "set"_a, "keep"_a.none(), "The rank whose message it is, and its bytes.")
      .def(
          "withdraw",
          [](HeldEngine& engine, const std::shared_ptr<Handle>& handle) {
            engine->withdraw(handle);
          },
          "handle"_a, nb::call_guard<WithoutGil>(),
          "Takes back a receive that no message has come for; does nothing to any other.");
}

}  // namespace sirtaki
