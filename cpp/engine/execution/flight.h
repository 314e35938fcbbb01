#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/still_time.h"
#include "engine/requests/request.h"
#include "engine/requests/submission.h"

namespace sirtaki {

/// One operation of a batch; `entry` is null on a joined rank.
struct Item {
  std::shared_ptr<const Response> response;
  uint64_t ordinal = 0;
  std::unique_ptr<Entry> entry;
  uint64_t record = 0;  ///< its number in the flight recorder
  std::string result;   ///< what the agreement carried; empty: the data are still to be moved
};

/// Operations that the sequencer wants to run together.
struct Batch {
  std::vector<Item> items;
  size_t chunk_bytes = 0;
  bool last = false;  ///< the last batch: the world shuts down
};

/// A batch in progress.
struct Flight {
  Flight(Batch batch, int track_number) : items(std::move(batch.items)), track(track_number) {
    op.chunk_bytes = batch.chunk_bytes;
  }

  const Request& base() const { return items[0].response->base; }
  /// The description for users: its first operation.
  std::string describe() const { return sirtaki::describe(base(), items[0].ordinal); }

  std::vector<Item> items;
  int track;
  Op op;
  Streams in;
  Streams out;
  std::vector<Buffer> zeros;  ///< for joined ranks to contribute, or for data not kept
  WorkPtr work;
  Awaited awaited;             ///< when its driver last prepared to sleep
  int64_t waits_since_ns = 0;  ///< 0: it has progressed since
  StillTime stuck;
  uint32_t sleeps_before = 0;  ///< of the host's ranks for one another
};

}  // namespace sirtaki
