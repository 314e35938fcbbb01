#include "transport/network/links.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "base/clock.h"
#include "python/bindings.h"
#include "python/engine/held_engine.h"
#include "python/kept.h"
#include "transport/heaps/own_heap.h"
#include "transport/network/renewal.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sirtaki {
namespace {

using FdPairs = std::vector<std::pair<int, int>>;
/// Rank, descriptor, sending key, receiving key.
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

/// Calls Python from any thread that needs a connection, or has lost one.
Connect connect_by(std::shared_ptr<nb::object> open, std::shared_ptr<nb::object> why_broken) {
  Connect connect;
  connect.open = [open = std::move(open)](int rank, int number, const Connect::Ended& ended) {
    return with_gil([&] {
      try {
        const auto [fd, sending, receiving] = nb::cast<std::tuple<int, nb::bytes, nb::bytes>>(
            (*open)(rank, number, nb::cpp_function(ended)));
        return DataSocket(Fd(fd), {key_of(sending), key_of(receiving)});
      } catch (const nb::python_error& error) {
        // Without the traceback: the text becomes part of an error message on all hosts.
        throw Error(ErrorCode::kPeerLost, nb::str(error.value()).c_str());
      }
    });
  };
  connect.why_broken = [why_broken = std::move(why_broken)](int rank) {
    return with_gil([&]() -> std::string {
      try {
        return nb::cast<std::string>((*why_broken)(rank));
      } catch (const nb::python_error& error) {
        return nb::str(error.value()).c_str();  // Ctrl-C may be raised in any Python code
      }
    });
  };
  return connect;
}

/// The last owner may be a thread that does not hold the GIL.
std::shared_ptr<nb::object> shared_object(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* owned) {
            drop(std::move(*owned));
            delete owned;
          }};
}

/// Descriptor and size of the shared heap of each rank of this host.
using Heaps = std::vector<std::pair<int, uint64_t>>;

std::unique_ptr<PeerHeaps> peer_heaps(int place, const Heaps& heaps) {
  if (heaps.empty()) return nullptr;
  std::vector<HeapMemory> memory;
  for (const auto& [fd, bytes] : heaps) memory.push_back({Fd(fd), bytes});
  return std::make_unique<PeerHeaps>(&own_heap(), place, std::move(memory));
}

std::shared_ptr<Links> make_links(int rank, std::vector<int> host_of, int memfd,
                                  const std::vector<int>& event_descriptors,
                                  const FdPairs& local_links, const SealedFds& host_links,
                                  nb::object connect, nb::object why_broken, const Heaps& heaps) {
  HostMap hosts(std::move(host_of));
  const int local = static_cast<int>(hosts.ranks_on(hosts.host_of(rank)).size());
  std::unique_ptr<PeerHeaps> shared = peer_heaps(hosts.place_of(rank), heaps);
  std::vector<Link> here = links_of(local_links);
  std::vector<Link> between = links_of(host_links);
  std::vector<Fd> polled(event_descriptors.begin(), event_descriptors.end());
  const size_t needed = memfd >= 0 && hosts.hosts() > 1 ? static_cast<size_t>(local) : 0;
  if (polled.size() != needed)
    throw nb::value_error("each rank of a host needs an event descriptor");
  auto region = memfd >= 0 ? Region::map(Fd(memfd), local, EventDescriptors(std::move(polled)))
                           : Region::anonymous(local);
  Connect opener;
  if (!connect.is_none()) {
    opener = connect_by(shared_object(std::move(connect)), shared_object(std::move(why_broken)));
  }
  return std::make_shared<Links>(rank, std::move(hosts), std::move(region), std::move(here),
                                 channels_over(std::move(between)), std::move(opener),
                                 std::move(shared));
}

/// The new generation; 0 if some rank has not kept its links; else the ranks that are late.
std::pair<uint32_t, std::vector<int32_t>> renew(Links& links, double timeout) {
  Renewal renewal(links, timeout);
  Renewal::State state;
  do {
    {
      const WithoutGil release;
      state = renewal.advance(now_ns() + kSignalCheckNs);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  } while (state == Renewal::State::kWaiting);
  return {state == Renewal::State::kAgreed ? links.generation() : 0, renewal.missing()};
}

}  // namespace

void bind_links(nb::module_& m) {
  static_assert(OwnedWithoutPython<Links>);
  nb::class_<Links>(m, "Links")
      .def(nb::new_(&make_links), "rank"_a, "host_of"_a, "memfd"_a, "event_descriptors"_a,
           "local_links"_a, "host_links"_a, "connect"_a.none(), "why_broken"_a.none(),
           "heaps"_a = Heaps(),
           "Takes ownership of the descriptors; memfd -1 is a host of one rank.")
      .def("renew", &renew, "timeout"_a,
           "Agrees with the other ranks to go on, when their engines have ended in good order.")
      .def("close", &Links::close, nb::call_guard<WithoutGil>());
}

}  // namespace sirtaki
