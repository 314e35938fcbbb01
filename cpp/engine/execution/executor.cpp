#include "engine/execution/executor.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backends/immediate.h"
#include "collectives/kinds.h"
#include "engine/execution/row_exchange.h"
#include "engine/requests/carried.h"
#include "engine/requests/checks.h"

namespace sirtaki {
namespace {

size_t bytes_of(const Request& request, int64_t count) {
  return static_cast<size_t>(count) * size_of(request.dtype);
}

size_t tensor_bytes(const Request& request, size_t t) {
  return bytes_of(request, elements(request.shapes[t]));
}

size_t row_bytes(const Request& request, size_t t) {
  return bytes_of(request, row_elements(request.shapes[t]));
}

Shape with_rows(const Shape& shape, int64_t rows) {
  Shape result = shape;
  result[0] = rows;
  return result;
}

void* allocate(Entry& entry, size_t t, const Shape& shape, size_t bytes) {
  std::string why;
  try {
    void* memory = entry.allocate(t, shape, bytes);
    if (memory != nullptr || bytes == 0) return memory;
  } catch (const std::exception& error) {
    why = std::string("\n  because ") + error.what();
  }
  entry.no_memory = "its caller has no memory for result " + std::to_string(t) + " of " +
                    std::to_string(bytes) + " bytes" + why;
  return nullptr;
}

/// Gives the handle a new tensor with `rows` rows. If the caller has no memory for it, the engine
/// provides some: the other members rely on this rank's part in the operation.
std::byte* new_output(Entry& entry, size_t t, int64_t rows) {
  Shape shape = with_rows(entry.request.shapes[t], rows);
  const size_t bytes = bytes_of(entry.request, elements(shape));
  void* memory = entry.allocate ? allocate(entry, t, shape, bytes) : nullptr;
  auto& outputs = entry.handle->outputs;
  outputs.push_back(memory != nullptr ? std::make_shared<Buffer>(std::move(shape), bytes, memory)
                                      : std::make_shared<Buffer>(std::move(shape), bytes));
  return outputs.back()->data();
}

/// Null if this member has none, and needs none. Streams hold writable memory, but nobody writes to
/// inputs through them.
std::byte* input(const Entry& entry, size_t t) {
  if (t >= entry.inputs.size()) return nullptr;
  return static_cast<std::byte*>(const_cast<void*>(entry.inputs[t]));
}

/// The caller's memory, or the engine's if a member need not provide any for data it does not keep.
void* output(Flight& flight, const Entry& entry, size_t t, size_t bytes) {
  void* const given = t < entry.outputs.size() ? entry.outputs[t] : nullptr;
  if (given != nullptr || bytes == 0) return given;
  return flight.zeros.emplace_back(Shape{}, bytes).data();
}

/// The contribution of a joined rank.
std::byte* add_zeros(Flight& flight, const Request& base) {
  const auto bytes = static_cast<size_t>(bytes_of(base));
  std::byte* zeros = flight.zeros.emplace_back(Shape{}, bytes).data();
  std::memset(zeros, 0, bytes);
  return zeros;
}

/// Adds rows to the members' streams; the members' rows follow one another in memory.
template <class RowsOf>
void deal(Streams& streams, std::byte* at, size_t row_bytes, RowsOf rows_of_member) {
  for (size_t m = 0; m < streams.size(); ++m) {
    const size_t bytes = static_cast<size_t>(rows_of_member(m)) * row_bytes;
    streams[m].add(at, bytes);
    at += bytes;
  }
}

}  // namespace

int Executor::track_of(const Batch& batch) const {
  if (batch.last) return kAllTracks;
  const Request& base = batch.items[0].response->base;
  if (changes_sets(base.kind)) return kAllTracks;
  return base.launched() ? kLaunchTrack : backend_.track_of(base.set);
}

void Executor::start(Flight& flight) {
  const Request& base = flight.base();
  if (base.kind == Kind::kAddSet) {
    flight.work = backend_.add_set(base.root, {base.splits.begin(), base.splits.end()});
  } else if (base.kind == Kind::kRemoveSet) {
    flight.work = backend_.remove_set(base.root);
  } else if (base.kind == Kind::kJoin) {
    flight.work = immediately([] {});
  } else if (base.launched()) {
    flight.work = immediately([this, &flight] { launch(flight); });
  } else {
    add_streams(flight);
    const bool exchanges = traits_of(base.kind).layout == Layout::kExchanged;
    const std::string& result = flight.items[0].result;
    if (!result.empty()) {
      flight.work = immediately([&] { deliver_carried(flight.op, result, flight.out[0]); });
    } else {
      flight.work = exchanges ? exchange(flight) : backend_.start(flight.op, flight.in, flight.out);
    }
  }
}

/// Passes a batch to the thread that launches it; no data moves here.
void Executor::launch(const Flight& flight) {
  Launches::Batch batch;
  for (const Item& item : flight.items) {
    const int64_t number = item.entry != nullptr ? item.entry->number : Launch::kJoined;
    context_.recorder.handed_over(item.record);  // before any thread can launch it
    batch.push_back({number, item.response, sets_.ranks(flight.base().set), item.record});
  }
  launches_.add(std::move(batch));
}

void Executor::add_streams(Flight& flight) {
  const Request& base = flight.base();
  const size_t members = sets_.ranks(base.set).size();
  const size_t chunk_bytes = flight.op.chunk_bytes;
  flight.op = op_of(base, members);
  flight.op.root = sets_.index(base.set, base.root);
  flight.op.chunk_bytes = chunk_bytes;
  flight.in.resize(traits_of(base.kind).gives_each() ? members : 1);
  flight.out.resize(traits_of(base.kind).takes_each() ? members : 1);
  flight.zeros.reserve(flight.items.size());
  // By layout; exchanges learn their rows first.
  static constexpr void (Executor::* kAdd[])(Flight&, Item&) = {
      &Executor::add_same_shape, &Executor::add_gathered, nullptr, &Executor::add_dealt,
      &Executor::add_pieces};
  const auto add = kAdd[static_cast<size_t>(traits_of(base.kind).layout)];
  for (Item& item : flight.items) {
    if (add != nullptr) (this->*add)(flight, item);
  }
  find_longest(flight);
}

void Executor::add_same_shape(Flight& flight, Item& item) {
  const Request& base = item.response->base;
  std::byte* zeros = item.entry == nullptr ? add_zeros(flight, base) : nullptr;
  for (size_t t = 0; t < base.shapes.size(); ++t) {
    const size_t bytes = tensor_bytes(base, t);
    flight.in[0].add(zeros != nullptr ? zeros : input(*item.entry, t), bytes);
    flight.out[0].add(zeros != nullptr ? zeros : output(flight, *item.entry, t, bytes), bytes);
    if (zeros != nullptr) zeros += bytes;
  }
}

void Executor::add_gathered(Flight& flight, Item& item) {
  Entry& entry = *item.entry;
  const size_t members = flight.out.size();
  const bool receives = !traits_of(flight.op.kind).to_root() || entry.request.root == context_.rank;
  for (size_t t = 0; t < entry.request.shapes.size(); ++t) {
    flight.in[0].add(input(entry, t), tensor_bytes(entry.request, t));
    if (!receives) continue;
    const int64_t* rows = item.response->sizes.data() + t * members;
    auto& received = entry.handle->received_splits;
    received.insert(received.end(), rows, rows + members);
    std::byte* at = new_output(entry, t, std::accumulate(rows, rows + members, int64_t{0}));
    deal(flight.out, at, row_bytes(entry.request, t), [&](size_t m) { return rows[m]; });
  }
}

WorkPtr Executor::exchange(Flight& flight) {
  const Entry& entry = *flight.items[0].entry;
  const size_t row = row_bytes(entry.request, 0);
  deal(flight.in, input(entry, 0), row, [&](size_t m) { return entry.request.splits[m]; });
  return std::make_unique<RowExchange>(
      backend_, flight.op, flight.in, flight.out,
      RowExchange::Plan{entry.request.splits, row, most_rows(entry.request.shapes[0]),
                        [this, &flight](const auto& rows) { receive_rows(flight, rows); }});
}

void Executor::receive_rows(Flight& flight, const std::vector<int64_t>& rows) {
  Entry& entry = *flight.items[0].entry;
  std::byte* to = new_output(entry, 0, std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  deal(flight.out, to, row_bytes(entry.request, 0), [&](size_t m) { return rows[m]; });
  entry.handle->received_splits = rows;
}

void Executor::add_dealt(Flight& flight, Item& item) {
  Entry& entry = *item.entry;
  const int members = static_cast<int>(flight.in.size());
  const int own = sets_.index(entry.request.set, context_.rank);
  for (size_t t = 0; t < entry.request.shapes.size(); ++t) {
    const int64_t rows = entry.request.shapes[t][0];
    const size_t row = row_bytes(entry.request, t);
    deal(flight.in, input(entry, t), row,
         [&](size_t m) { return rows_of(rows, members, static_cast<int>(m)); });
    const int64_t own_rows = rows_of(rows, members, own);
    flight.out[0].add(new_output(entry, t, own_rows), static_cast<size_t>(own_rows) * row);
  }
}

void Executor::add_pieces(Flight& flight, Item& item) {
  Entry& entry = *item.entry;
  if (entry.request.root == context_.rank) {
    for (size_t m = 0; m < flight.in.size(); ++m) {
      flight.in[m].add(input(entry, m), tensor_bytes(entry.request, 0));
    }
  }
  const size_t bytes = tensor_bytes(entry.request, 0);
  flight.out[0].add(output(flight, entry, 0, bytes), bytes);
}

void Executor::find_longest(Flight& flight) const {
  size_t& longest = flight.op.longest;
  if (traits_of(flight.op.kind).layout == Layout::kGathered) {
    std::vector<size_t> streams(flight.out.size());
    for (const Item& item : flight.items) {
      const Response& response = *item.response;
      for (size_t i = 0; i < response.sizes.size(); ++i) {
        const size_t row = row_bytes(response.base, i / streams.size());
        streams[i % streams.size()] += static_cast<size_t>(response.sizes[i]) * row;
      }
    }
    longest = *std::max_element(streams.begin(), streams.end());
    return;
  }
  // If only some members hold data, the size that all receive counts.
  for (const Segments& stream : flight.in) longest = std::max(longest, stream.bytes());
  for (const Segments& stream : flight.out) longest = std::max(longest, stream.bytes());
}

}  // namespace sirtaki
