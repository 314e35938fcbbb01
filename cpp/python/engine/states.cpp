#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>

#include "base/clock.h"
#include "base/decimal.h"
#include "engine/observe/exposed.h"
#include "engine/observe/rank_state.h"
#include "python/engine/held_engine.h"

namespace nb = nanobind;
using namespace nb::literals;

// Reports what ranks are doing.
namespace sirtaki {
namespace {

/// -1: there is no number.
int64_t number_of(uint32_t chunk) {
  return chunk == Awaited::kNoChunk ? int64_t{-1} : int64_t{chunk};
}

/// For each rank: (rank, its state, its operations, oldest first).
nb::list snapshot_of(HeldEngine& engine, size_t most, double patience) {
  std::vector<Engine::Snapshot> ranks;
  {
    const WithoutGil release;
    ranks = engine->snapshot(most, patience > 0 ? now_ns() + ns_of(patience) : 0);
  }
  nb::list result;
  for (Engine::Snapshot& rank : ranks) {
    result.append(nb::make_tuple(rank.rank, nb::cast(std::move(rank.state)),
                                 nb::cast(std::move(rank.operations))));
  }
  return result;
}

/// A count for each kind of operation that the rank has asked for.
nb::dict by_kind(const RankTotals& totals, std::atomic<uint64_t> RankTotals::OfKind::* count) {
  nb::dict found;
  for (size_t i = 0; i < kKindCount; ++i) {
    const RankTotals::OfKind& one = totals.kinds[i];
    if (one.operations.load(std::memory_order_relaxed) == 0) continue;
    found[traits_of(static_cast<Kind>(i)).name] = (one.*count).load(std::memory_order_relaxed);
  }
  return found;
}

/// The number of steps for each upper bound of their time in seconds.
nb::dict steps_of(const RankTotals& totals) {
  nb::dict found;
  for (size_t i = 0; i < totals.steps.size(); ++i) {
    const int64_t ns = RankTotals::kStepBounds[i];
    const std::string bound = ns == INT64_MAX ? "+Inf" : short_text(static_cast<double>(ns) * 1e-9);
    found[bound.c_str()] = totals.steps[i].load(std::memory_order_relaxed);
  }
  return found;
}

nb::dict seconds_of(const RankBlock& block) {
  nb::dict found;
  const int64_t now = now_ns();
  found["waiting"] = waited_seconds(block.totals, now);
  found["steps"] =
      static_cast<double>(block.totals.steps_ns.load(std::memory_order_relaxed)) * 1e-9;
  // Without calls that wait, a framework's own code waits.
  if (block.waits.load(std::memory_order_relaxed) > 0) {
    found["exposed"] = waited_seconds(block, now);
  }
  return found;
}

/// As `Totals` of `sirtaki.questions.messages`; None for a rank of another host.
nb::object totals_of(HeldEngine& engine, int rank) {
  const RankBlock* block = engine->block_of(rank);
  if (block == nullptr) return nb::none();
  const RankTotals& totals = block->totals;
  nb::dict found;
  found["began"] = totals.began_ns.load(std::memory_order_relaxed);
  found["operations"] = by_kind(totals, &RankTotals::OfKind::operations);
  found["bytes"] = by_kind(totals, &RankTotals::OfKind::bytes);
  found["errors"] = by_kind(totals, &RankTotals::OfKind::errors);
  found["seconds"] = seconds_of(*block);
  found["steps"] = steps_of(totals);
  return found;
}

/// (seconds that threads of this rank were blocked in calls that wait, such calls, operations that
/// it has asked for). A snapshot reads all records of all ranks for that.
nb::tuple waits_of(HeldEngine& engine) {
  const RankBlock& block = *engine->block_of(engine->rank());
  uint64_t operations = 0;
  for (const RankTotals::OfKind& kind : block.totals.kinds) {
    operations += kind.operations.load(std::memory_order_relaxed);
  }
  const uint64_t calls = block.waits.load(std::memory_order_relaxed);
  return nb::make_tuple(waited_seconds(block, now_ns()), calls, operations);
}

/// (operations that have ended since, as bytes for `decode_records`; open ones; where to continue;
/// the number of lost messages).
nb::tuple drain(HeldEngine& engine, Recorder::Number next,
                const std::vector<Recorder::Number>& open) {
  Recorder::Drained found;
  {
    const WithoutGil release;
    found = engine->recorder().drain(next, open);
  }
  const size_t size = found.ended.size() * sizeof(FlightRecord::Words);
  return nb::make_tuple(nb::bytes(found.ended.data(), size), found.open, found.next, found.lost);
}

std::vector<Recorded> decode_records(const nb::bytes& drained, int ranks) {
  std::vector<Recorded> found;
  FlightRecord::Words words;
  const auto* data = static_cast<const char*>(drained.data());
  for (size_t at = 0; at + sizeof(words) <= drained.size(); at += sizeof(words)) {
    std::memcpy(&words, data + at, sizeof(words));
    if (auto one = decode(words, ranks)) found.push_back(std::move(*one));
  }
  return found;
}

}  // namespace

void bind_states(nb::module_& m, nb::class_<HeldEngine>& engine) {
  nb::class_<Recorded>(m, "Recorded")
      .def_ro("number", &Recorded::number)
      .def_ro("sequence", &Recorded::sequence)
      .def_prop_ro("operation", [](const Recorded& one) { return one.operation; })
      .def_ro("tensor", &Recorded::tensor)
      .def_prop_ro("dtype", [](const Recorded& one) { return name(one.dtype); })
      .def_prop_ro("stage", [](const Recorded& one) { return name(one.stage); })
      .def_ro("set", &Recorded::set)
      .def_ro("bytes", &Recorded::bytes)
      .def_ro("submitted_ns", &Recorded::submitted_ns)
      .def_ro("agreed_ns", &Recorded::agreed_ns)
      .def_ro("begun_ns", &Recorded::begun_ns)
      .def_ro("ended_ns", &Recorded::ended_ns)
      .def_prop_ro("phase", [](const Recorded& one) { return name(one.awaited.phase); })
      .def_prop_ro("peer", [](const Recorded& one) { return one.awaited.rank; })
      .def_prop_ro("chunk", [](const Recorded& one) { return number_of(one.awaited.chunk); })
      .def_ro("waits_since_ns", &Recorded::waits_since_ns);

  nb::class_<RankState>(m, "RankState")
      .def_prop_ro("known", &RankState::known)
      .def_prop_ro("gone",
                   [](const RankState& state) { return state.place == RankState::Place::kGone; })
      .def_prop_ro("stage", [](const RankState& state) { return name(state.stage); })
      .def_ro("operation", &RankState::operation)
      .def_ro("tensor", &RankState::tensor)
      .def_prop_ro("phase", [](const RankState& state) { return name(state.phase); })
      .def_ro("peer", &RankState::peer)
      .def_prop_ro("chunk", [](const RankState& state) { return number_of(state.chunk); })
      .def_ro("seconds", &RankState::seconds)
      .def_ro("open", &RankState::open)
      .def_ro("completed", &RankState::completed)
      .def_ro("blocked_seconds", &RankState::blocked_seconds)
      .def_ro("exposed_seconds", &RankState::exposed_seconds)
      .def_ro("calls", &RankState::calls)
      .def("__str__", &text_of);

  engine.def("snapshot", &snapshot_of, "most"_a, "patience"_a);
  engine.def("totals", &totals_of, "rank"_a);
  engine.def("waits", &waits_of);
  engine.def("drain", &drain, "next"_a, "open"_a);
  engine.def(
      "be_precise", [](HeldEngine& held, bool wanted) { held->recorder().be_precise(wanted); },
      "wanted"_a);
  m.def("decode_records", &decode_records, "drained"_a, "ranks"_a);
}

}  // namespace sirtaki
