#pragma once

#include <cstdint>

namespace sirtaki {

/// From a rank to the sequencer.
enum class Up : uint8_t {
  kRequest,   ///< a request in full
  kReady,     ///< the short id of an earlier request
  kCarry,     ///< the same, and the rank's numbers: see carried.h
  kFlushed,   ///< the rank has forgotten all ids
  kShutdown,  ///< the rank leaves, which ends the world
  kLast,      ///< the rank submits nothing more, but finishes what it has
  kMeet,      ///< the rank wants to connect to a rank of another host
  kAsk,       ///< the rank wants to know what all are doing
};

/// Whether it reports an operation, of which the sequencer needs to know only when it is the last.
constexpr bool reports(Up kind) { return kind <= Up::kCarry; }

/// From the sequencer to a rank.
enum class Down : uint8_t {
  kBatch,     ///< operations to run together, now
  kError,     ///< an operation that cannot be run, and why
  kFlush,     ///< forget all ids
  kTune,      ///< from the next batch on, another chunk size
  kShutdown,  ///< a rank left; nothing more will be run
  kMeet,      ///< a rank of another host wants to connect
  kTell,      ///< what ranks are doing
  kOffer,     ///< rank 0's numbers for the other of two members: see Negotiation::use_offer
};

}  // namespace sirtaki
