#include "engine/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "engine/requests/kinds.h"
#include "ffi/table.h"
#include "python/bindings.h"
#include "python/callback_backend.h"
#include "python/completions.h"
#include "python/kept.h"
#include "python/launches.h"
#include "transport/heaps/own_heap.h"
#include "transport/network/renewal.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

/// A blocked call looks for signals this often, so that Ctrl-C works.
constexpr int64_t kSignalCheckNs = 200'000'000;

/// Python's share in an engine; what other libraries have under way in it may outlive it. Whoever
/// drops it without shutdown() holds the GIL, which the engine's thread may need to end.
class HeldEngine {
 public:
  explicit HeldEngine(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  ~HeldEngine() {
    const nb::gil_scoped_release release;
    engine_->shutdown();
    engine_.reset();
  }
  HeldEngine(const HeldEngine&) = delete;
  HeldEngine& operator=(const HeldEngine&) = delete;

  Engine* operator->() const { return engine_.get(); }
  const std::shared_ptr<Engine>& shared() const { return engine_; }

 private:
  std::shared_ptr<Engine> engine_;
};

/// False if the handle is not done at `limit_ns` on the monotonic clock. Throws what handlers of
/// signals raise, and where it may be `for_ever`, what ends the job when all its ranks are blocked.
bool wait_interruptibly(HeldEngine& engine, Handle& handle, int64_t limit_ns = Engine::kForever,
                        bool for_ever = true) {
  Callers::Wait waiting(*engine.shared());
  while (!handle.done()) {
    {
      nb::gil_scoped_release release;
      if (engine->wait(handle, std::min(limit_ns, now_ns() + kSignalCheckNs))) break;
      if (for_ever) waiting.goes_on(now_ns());
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (now_ns() >= limit_ns) return false;
  }
  let_go(handle);
  return true;
}

void check(const Handle& handle) {
  if (handle.done() && handle.error()) throw *handle.error();
}

bool done(const Handle& handle) {
  let_go(handle);
  return handle.done();
}

bool wait(HeldEngine& engine, Handle& handle, std::optional<double> timeout, bool for_ever) {
  const int64_t limit =
      timeout ? now_ns() + static_cast<int64_t>(*timeout * 1e9) : Engine::kForever;
  return wait_interruptibly(engine, handle, limit, for_ever);
}

using FdPairs = std::vector<std::pair<int, int>>;
/// Rank, descriptor, key of what is sent, key of what is received.
using SealedFds = std::vector<std::tuple<int, int, nb::bytes, nb::bytes>>;

std::vector<Link> links_of(const FdPairs& pairs) {
  std::vector<Link> links;
  for (const auto& [peer, fd] : pairs) links.push_back({peer, Fd(fd)});
  return links;
}

SipKey key_of(const nb::bytes& bytes) {
  SipKey key;
  if (bytes.size() != key.size()) throw nb::value_error("a key of a link has 16 bytes");
  std::memcpy(key.data(), bytes.c_str(), key.size());
  return key;
}

std::vector<Link> links_of(const SealedFds& sealed) {
  std::vector<Link> links;
  for (const auto& [peer, fd, sending, receiving] : sealed) {
    links.push_back({peer, Fd(fd), {key_of(sending), key_of(receiving)}});
  }
  return links;
}

/// Calls Python from whichever thread needs a connection, or has lost one.
Connect connect_by(std::shared_ptr<nb::object> open, std::shared_ptr<nb::object> why_broken) {
  Connect connect;
  connect.open = [open = std::move(open)](int rank, int lane, const Connect::Ended& ended) {
    const nb::gil_scoped_acquire acquire;
    try {
      const auto [fd, sending, receiving] = nb::cast<std::tuple<int, nb::bytes, nb::bytes>>(
          (*open)(rank, lane, nb::cpp_function(ended)));
      return DataSocket(Fd(fd), {key_of(sending), key_of(receiving)});
    } catch (const nb::python_error& error) {
      // Without the traceback: it becomes part of a message on all hosts.
      throw Error(ErrorCode::kPeerLost, nb::str(error.value()).c_str());
    }
  };
  connect.why_broken = [why_broken = std::move(why_broken)](int rank) {
    const nb::gil_scoped_acquire acquire;
    return nb::cast<std::string>((*why_broken)(rank));
  };
  return connect;
}

/// The last owner may be a thread that does not hold the GIL.
std::shared_ptr<nb::object> shared_object(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* owned) {
            const nb::gil_scoped_acquire acquire;
            delete owned;
          }};
}

/// Descriptor and bytes of the shared heap of each rank of this host.
using Heaps = std::vector<std::pair<int, uint64_t>>;

std::unique_ptr<PeerHeaps> peer_heaps(int place, const Heaps& heaps) {
  if (heaps.empty()) return nullptr;
  std::vector<HeapMemory> memory;
  for (const auto& [fd, bytes] : heaps) memory.push_back({Fd(fd), bytes});
  return std::make_unique<PeerHeaps>(own_heap(), place, std::move(memory));
}

std::shared_ptr<Links> make_links(int rank, std::vector<int> host_of, int memfd,
                                  const std::vector<int>& bells, const FdPairs& local_links,
                                  const SealedFds& host_links, nb::object connect,
                                  nb::object why_broken, double patience, double silent,
                                  const Heaps& heaps) {
  HostMap hosts(std::move(host_of));
  const int local = static_cast<int>(hosts.ranks_on(hosts.host_of(rank)).size());
  std::unique_ptr<PeerHeaps> shared = peer_heaps(hosts.place_of(rank), heaps);
  std::vector<Link> here = links_of(local_links);
  std::vector<Link> between = links_of(host_links);
  std::vector<Fd> polled(bells.begin(), bells.end());
  const size_t needed = memfd >= 0 && hosts.hosts() > 1 ? static_cast<size_t>(local) : 0;
  if (polled.size() != needed) throw nb::value_error("each rank of a host needs a bell");
  auto region = memfd >= 0 ? Region::map(Fd(memfd), local, Bells(std::move(polled)))
                           : Region::anonymous(local);
  Connect opener;
  if (!connect.is_none()) {
    opener = connect_by(shared_object(std::move(connect)), shared_object(std::move(why_broken)));
  }
  return std::make_shared<Links>(rank, std::move(hosts), std::move(region), std::move(here),
                                 std::move(between), std::move(opener), patience, silent,
                                 std::move(shared));
}

/// The new generation; 0 where some rank has not kept its links; else those who are late.
std::pair<uint32_t, std::vector<int32_t>> renew(Links& links, double timeout) {
  Renewal renewal(links, timeout);
  Renewal::State state;
  do {
    {
      nb::gil_scoped_release release;
      state = renewal.advance(now_ns() + kSignalCheckNs);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  } while (state == Renewal::State::kWaiting);
  return {state == Renewal::State::kAgreed ? links.generation() : 0, renewal.missing()};
}

std::unique_ptr<HeldEngine> make_engine(const std::shared_ptr<Links>& links,
                                        const EngineOptions& options, const nb::object& backend) {
  Engine::MakeBackend make_backend = Engine::make_native;
  if (!backend.is_none()) {
    make_backend = [&](Endpoint&, const HostMap&, const Connect&) {
      return std::make_unique<CallbackBackend>(backend);
    };
  }
  return std::make_unique<HeldEngine>(Engine::share(
      std::make_unique<Engine>(links->rank(), links->map(), links->region(), Links::lend(links),
                               links->connect(), options, make_backend)));
}

template <class Pointer>
std::vector<Pointer> pointers(const std::vector<uintptr_t>& addresses) {
  std::vector<Pointer> result;
  result.reserve(addresses.size());
  for (const uintptr_t address : addresses) result.push_back(reinterpret_cast<Pointer>(address));
  return result;
}

/// What a Python caller wants done; used up by the engine that it is given to.
struct PythonRequest {
  Submission submission;
  bool waits;
};

/// Address and bytes.
using Memory = std::pair<uintptr_t, size_t>;

/// The caller's memory for results whose size the ranks agree on, where he knows it as well.
Allocate memory_of(std::vector<Memory> results) {
  return [results = std::move(results)](size_t tensor, const Shape&, size_t bytes) {
    const auto [address, expected] = results.at(tensor);
    if (bytes == expected) return reinterpret_cast<void*>(address);
    throw Error(ErrorCode::kInvalid,
                "the tensor given for it has " + std::to_string(expected) + " bytes");
  };
}

/// One whose number is added to `completions`, if there are any, when it is done.
std::shared_ptr<Handle> handle_for(std::shared_ptr<Completions> completions, int64_t number) {
  if (completions == nullptr) return std::make_shared<Handle>();
  return std::make_shared<Handle>(
      [completions = std::move(completions), number](const Handle&) { completions->add(number); });
}

void make_request(PythonRequest* made, int kind, std::string name, int dtype, int reduce, int root,
                  int set, double prescale, double postscale, int wire, std::vector<Shape> shapes,
                  std::vector<int64_t> splits, const std::vector<uintptr_t>& inputs,
                  const std::vector<uintptr_t>& outputs, std::vector<Memory> results, bool waits,
                  std::shared_ptr<Completions> completions, int64_t number) {
  Request request;
  request.kind = static_cast<Kind>(kind);
  request.dtype = static_cast<Dtype>(dtype);
  request.reduce = static_cast<ReduceOp>(reduce);
  request.scale = {prescale, postscale};
  request.wire = static_cast<WireFormat>(wire);
  request.root = root;
  request.set = set;
  request.name = std::move(name);
  request.shapes = std::move(shapes);
  request.splits = std::move(splits);
  new (made) PythonRequest{
      {std::move(request), pointers<const void*>(inputs), pointers<void*>(outputs)}, waits};
  Submission& submission = made->submission;
  if (!results.empty()) submission.allocate = memory_of(std::move(results));
  submission.handle = handle_for(std::move(completions), number);
}

void launch_as(PythonRequest& asked, int64_t number) {
  asked.submission.request.device = 1;
  asked.submission.number = number;
}

/// Name and process set; None without a name.
nb::object key_of_request(const PythonRequest& asked) {
  const Request& request = asked.submission.request;
  if (request.name.empty()) return nb::none();
  return nb::make_tuple(request.name, request.set);
}

std::shared_ptr<Handle> submit(HeldEngine& engine, PythonRequest& asked, nb::object keep) {
  std::shared_ptr<Handle> handle = asked.submission.handle;
  if (handle == nullptr) throw nb::value_error("the request has been submitted already");
  sirtaki::keep(*handle, std::move(keep));
  {
    nb::gil_scoped_release release;
    if (!asked.waits) return engine->submit(std::move(asked.submission));
    engine->submit_and_wait(std::move(asked.submission), now_ns() + kSignalCheckNs);
  }
  wait_interruptibly(engine, *handle);
  check(*handle);
  return handle;
}

/// A caller that is interrupted gives its message up, for nobody else has the handle.
void wait_for_message(HeldEngine& engine, const std::shared_ptr<Handle>& handle) {
  try {
    wait_interruptibly(engine, *handle);
  } catch (...) {
    engine->withdraw(handle);
    throw;
  }
  check(*handle);
}

std::shared_ptr<Handle> start(HeldEngine& engine, Transfer transfer, bool waits, nb::object keep,
                              std::shared_ptr<Handle> handle) {
  sirtaki::keep(*handle, std::move(keep));
  transfer.owner = handle;
  {
    nb::gil_scoped_release release;
    if (!waits) {
      engine->start(std::move(transfer));
      return handle;
    }
    engine->start_and_wait(std::move(transfer), now_ns() + kSignalCheckNs);
  }
  wait_for_message(engine, handle);
  return handle;
}

std::shared_ptr<Handle> send(HeldEngine& engine, uintptr_t address, size_t bytes, int rank,
                             int64_t tag, int set, bool waits, nb::object keep,
                             std::shared_ptr<Completions> completions, int64_t number) {
  return start(engine, {true, rank, set, tag, reinterpret_cast<std::byte*>(address), bytes}, waits,
               std::move(keep), handle_for(std::move(completions), number));
}

std::shared_ptr<Handle> receive(HeldEngine& engine, uintptr_t address, size_t bytes, int rank,
                                int64_t tag, int set, bool waits, nb::object keep,
                                std::shared_ptr<Completions> completions, int64_t number) {
  return start(engine, {false, rank, set, tag, reinterpret_cast<std::byte*>(address), bytes}, waits,
               std::move(keep), handle_for(std::move(completions), number));
}

/// Seconds of each of `repeats` messages of `bytes` at `address` to another rank and back, which
/// does the same; the lower one begins.
std::vector<double> time_round_trip(HeldEngine& engine, int rank, uintptr_t address, size_t bytes,
                                    int repeats) {
  nb::gil_scoped_release release;
  const auto move = [&](bool sends) {
    const auto handle =
        engine->start_and_wait({sends, rank, 0, 0, reinterpret_cast<std::byte*>(address), bytes});
    if (handle->error()) throw *handle->error();
  };
  const bool begins = engine->rank() < rank;
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const int64_t begun = now_ns();
    move(begins);
    move(!begins);
    seconds.push_back(static_cast<double>(now_ns() - begun) * 1e-9);
  }
  return seconds;
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

/// Of the ranks of this host: (rank, its operations, oldest first).
nb::list snapshot_of(const HeldEngine& engine, size_t most) {
  std::vector<Engine::RankRecords> ranks;
  {
    const nb::gil_scoped_release release;
    ranks = engine->snapshot(most);
  }
  nb::list result;
  for (Engine::RankRecords& rank : ranks) {
    result.append(nb::make_tuple(rank.rank, nb::cast(std::move(rank.operations))));
  }
  return result;
}

/// Seconds of each of `repeats` in-place sums of `count` float32 at `address`, without the engine's
/// matching.
std::vector<double> time_allreduce(HeldEngine& engine, uintptr_t address, size_t count,
                                   int repeats) {
  nb::gil_scoped_release release;
  Op op;
  op.kind = Kind::kAllreduce;
  op.dtype = Dtype::kF32;
  Streams stream(1);
  stream[0].add(reinterpret_cast<void*>(address), count * sizeof(float));
  op.longest = stream[0].bytes();
  std::vector<double> seconds;
  engine->with_backend([&](Backend& backend, const Doorbell& doorbell) {
    for (int i = 0; i < repeats; ++i) {
      const int64_t start = now_ns();
      finish(*backend.start(op, stream, stream), doorbell);
      seconds.push_back(static_cast<double>(now_ns() - start) * 1e-9);
    }
  });
  return seconds;
}

/// Seconds of each of `repeats` in-place sums of `count` float32 at `address`, submitted and waited
/// for as any operation is.
std::vector<double> time_submit(HeldEngine& engine, uintptr_t address, size_t count, int repeats) {
  nb::gil_scoped_release release;
  auto* data = reinterpret_cast<float*>(address);
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const int64_t start = now_ns();
    Request request;
    request.kind = Kind::kAllreduce;
    request.dtype = Dtype::kF32;
    request.shapes = {{static_cast<int64_t>(count)}};
    const auto handle = engine->submit({std::move(request), {data}, {data}});
    engine->wait(*handle);
    seconds.push_back(static_cast<double>(now_ns() - start) * 1e-9);
    if (handle->error()) throw *handle->error();
  }
  return seconds;
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<AutotuneOptions>(m, "AutotuneOptions")
      .def_rw("enabled", &AutotuneOptions::enabled)
      .def_rw("log", &AutotuneOptions::log)
      .def_rw("warmup_samples", &AutotuneOptions::warmup_samples)
      .def_rw("steps_per_sample", &AutotuneOptions::steps_per_sample)
      .def_rw("max_samples", &AutotuneOptions::max_samples)
      .def_rw("chunk_fixed", &AutotuneOptions::chunk_fixed)
      .def_rw("fusion_fixed", &AutotuneOptions::fusion_fixed);

  nb::class_<EngineOptions>(m, "EngineOptions")
      .def(nb::init<>())
      .def_rw("fusion_bytes", &EngineOptions::fusion_bytes)
      .def_rw("chunk_bytes", &EngineOptions::chunk_bytes)
      .def_rw("cache_capacity", &EngineOptions::cache_capacity)
      .def_rw("stall_warning_seconds", &EngineOptions::stall_warning_seconds)
      .def_rw("stall_shutdown_seconds", &EngineOptions::stall_shutdown_seconds)
      .def_rw("caller_spin_ns", &EngineOptions::caller_spin_ns)
      .def_rw("engine_spin_ns", &EngineOptions::engine_spin_ns)
      .def_prop_rw(
          "log_level", [](const EngineOptions& o) { return static_cast<int>(o.log_level); },
          [](EngineOptions& o, int level) { o.log_level = static_cast<LogLevel>(level); })
      .def_rw("log_time", &EngineOptions::log_time)
      .def_rw("autotune", &EngineOptions::autotune)
      .def_rw("sockets_per_peer", &EngineOptions::sockets_per_peer)
      .def_rw("direct_hosts", &EngineOptions::direct_hosts)
      .def_rw("single_copy", &EngineOptions::single_copy)
      .def_rw("hosts", &EngineOptions::hosts)
      .def_rw("data_timeout_seconds", &EngineOptions::data_timeout_seconds)
      .def_rw("host_timeout_seconds", &EngineOptions::host_timeout_seconds)
      .def_rw("deadlock_seconds", &EngineOptions::deadlock_seconds)
      .def_rw("has_whole_job", &EngineOptions::has_whole_job)
      .def_rw("silent_seconds", &EngineOptions::silent_seconds);

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
           "wire"_a = static_cast<int>(WireFormat::kOwn), "shapes"_a = std::vector<Shape>(),
           "splits"_a = std::vector<int64_t>(), "inputs"_a = std::vector<uintptr_t>(),
           "outputs"_a = std::vector<uintptr_t>(), "results"_a = std::vector<Memory>(),
           "waits"_a = false, "completions"_a.none() = std::shared_ptr<Completions>(),
           "number"_a = int64_t{0})
      .def("launch_as", &launch_as, "number"_a,
           "Marks an operation that its caller launches, on an accelerator: see `launches`.")
      .def_ro("waits", &PythonRequest::waits)
      .def_prop_ro("key", &key_of_request);

  nb::class_<Recorded>(m, "Recorded")
      .def_ro("number", &Recorded::number)
      .def_prop_ro("kind", [](const Recorded& one) { return traits_of(one.kind).name; })
      .def_prop_ro("dtype", [](const Recorded& one) { return name(one.dtype); })
      .def_prop_ro("stage", [](const Recorded& one) { return name(one.stage); })
      .def_ro("set", &Recorded::set)
      .def_ro("bytes", &Recorded::bytes)
      .def_ro("shown", &Recorded::shown)
      .def_ro("submitted_ns", &Recorded::submitted_ns)
      .def_ro("agreed_ns", &Recorded::agreed_ns)
      .def_ro("begun_ns", &Recorded::begun_ns)
      .def_ro("ended_ns", &Recorded::ended_ns)
      .def_prop_ro("phase", [](const Recorded& one) { return name(one.awaited.phase); })
      .def_prop_ro("peer", [](const Recorded& one) { return one.awaited.rank; })
      .def_prop_ro("chunk",
                   [](const Recorded& one) {
                     const uint32_t chunk = one.awaited.chunk;
                     return chunk == Awaited::kNoChunk ? int64_t{-1} : int64_t{chunk};
                   })
      .def_ro("waits_since_ns", &Recorded::waits_since_ns);

  nb::class_<Links>(m, "Links")
      .def(nb::new_(&make_links), "rank"_a, "host_of"_a, "memfd"_a, "bells"_a, "local_links"_a,
           "host_links"_a, "connect"_a.none(), "why_broken"_a.none(), "patience"_a, "silent"_a,
           "heaps"_a = Heaps(),
           "Takes ownership of the descriptors; memfd -1 is a host of one rank.")
      .def("renew", &renew, "timeout"_a,
           "Agrees with the other ranks to go on, when their engines have ended in good order.")
      .def("close", &Links::close, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<HeldEngine>(m, "Engine")
      .def(nb::new_(&make_engine), "links"_a, "options"_a, "backend"_a = nb::none(),
           "`backend`, if given, moves the data (see callback_backend.h): shut down before letting "
           "go.")
      .def("submit", &submit, "request"_a, "keep"_a.none(),
           "`keep` is what the memory of the operation belongs to: it lives until that is done.")
      .def("send", &send, "address"_a, "bytes"_a, "rank"_a, "tag"_a, "set"_a, "waits"_a,
           "keep"_a.none(), "completions"_a.none() = std::shared_ptr<Completions>(),
           "number"_a = int64_t{0})
      .def("receive", &receive, "address"_a, "bytes"_a, "rank"_a, "tag"_a, "set"_a, "waits"_a,
           "keep"_a.none(), "completions"_a.none() = std::shared_ptr<Completions>(),
           "number"_a = int64_t{0})
      .def(
          "withdraw",
          [](HeldEngine& engine, const std::shared_ptr<Handle>& handle) {
            engine->withdraw(handle);
          },
          "handle"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Takes back a receive that no message has come for; does nothing to any other.")
      .def("wait", &wait, "handle"_a, "timeout"_a = nb::none(), "for_ever"_a = true,
           "`for_ever` says that the timeout, if any, is one that nobody counts on.")
      .def(
          "shutdown", [](HeldEngine& engine) { return engine->shutdown(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "abort", [](HeldEngine& engine, const std::string& why) { engine->abort(why); }, "why"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "start_timeline",
          [](HeldEngine& engine, const std::string& path, bool mark_cycles) {
            engine->start_timeline(path, mark_cycles);
          },
          "path"_a, "mark_cycles"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "stop_timeline", [](HeldEngine& engine) { engine->stop_timeline(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("snapshot", &snapshot_of, "most"_a)
      .def(
          "process_sets", [](HeldEngine& engine) { return engine->process_sets(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("launches", [](HeldEngine& engine) { return engine->launches(); })
      .def(
          "direct",
          [](HeldEngine& engine) -> std::pair<uint64_t, uint64_t> {
            const PeerHeaps* heaps = engine->heaps();
            if (heaps == nullptr) return {0, 0};
            return {heaps->operations(), heaps->moved()};
          },
          "How many operations moved bytes of shared heaps directly, and how many bytes.")
      .def("backend_name", [](HeldEngine& engine) { return engine->backend_name(); })
      .def("require_own_process", [](HeldEngine& engine) { engine->require_own_process(); })
      .def("time_allreduce", &time_allreduce, "address"_a, "count"_a, "repeats"_a)
      .def("time_submit", &time_submit, "address"_a, "count"_a, "repeats"_a)
      .def("time_round_trip", &time_round_trip, "rank"_a, "address"_a, "bytes"_a, "repeats"_a);

  m.def(
      "set_current_engine",
      [](const HeldEngine* engine) {
        set_current_engine(engine == nullptr ? nullptr : engine->shared());
      },
      "engine"_a.none());
  m.def("ffi_address", [] { return reinterpret_cast<uintptr_t>(&ffi_table()); });
  m.def("ffi_capsule", [] { return nb::capsule(&ffi_table(), "sirtaki.ffi"); });
}

}  // namespace sirtaki
