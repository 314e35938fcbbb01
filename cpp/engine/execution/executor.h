#pragma once

#include <vector>

#include "backends/backend.h"
#include "engine/execution/flight.h"
#include "engine/execution/launches.h"
#include "engine/rank_context.h"
#include "engine/requests/process_sets.h"

namespace sirtaki {

/// Turns a batch of agreed operations into one call of the backend.
class Executor {
 public:
  /// The track of batches that must run alone.
  static constexpr int kAllTracks = -1;
  /// The track of operations that the caller launches on accelerators: in one order, beside others.
  static constexpr int kLaunchTrack = -2;

  /// `sets` must not change while a batch is in progress.
  Executor(RankContext& context, Backend& backend, const ProcessSets& sets, Launches& launches)
      : context_(context), backend_(backend), sets_(sets), launches_(launches) {}

  /// The track of the backend in which a batch runs.
  int track_of(const Batch& batch) const;
  /// Starts the flight's work.
  void start(Flight& flight);

 private:
  void launch(const Flight& flight);
  void add_streams(Flight& flight);
  void add_same_shape(Flight& flight, Item& item);
  void add_gathered(Flight& flight, Item& item);
  WorkPtr exchange(Flight& flight);
  void receive_rows(Flight& flight, const std::vector<int64_t>& rows);
  void add_dealt(Flight& flight, Item& item);
  void add_pieces(Flight& flight, Item& item);
  void find_longest(Flight& flight) const;

  RankContext& context_;
  Backend& backend_;
  const ProcessSets& sets_;
  Launches& launches_;
};

}  // namespace sirtaki
