#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "engine/observe/recorder.h"
#include "transport/hosts.h"

namespace sirtaki {

/// What a rank is doing: its operation or message that shows most.
struct RankState {
  enum class Place : uint8_t { kUnknown, kWorld, kGone };

  int32_t rank = -1;
  Place place = Place::kUnknown;  ///< where it is; all below is known only for one in the world
  Stage stage = Stage::kNone;     ///< kNone: it never had an operation
  std::string operation{};        ///< `allreduce`; for a message `send` or `receive`
  std::string tensor{};           ///< `grad`; for a message `tag 5`
  Phase phase = Phase::kNone;     ///< what it waits for
  int32_t peer = -1;              ///< the rank that must do that; -1: no particular one
  uint32_t chunk = Awaited::kNoChunk;
  double seconds = 0;          ///< time at that stage, or in that wait
  uint32_t open = 0;           ///< operations and messages that have not ended
  uint64_t completed = 0;      ///< operations that have ended since init()
  double blocked_seconds = 0;  ///< a thread is blocked for it, without progress for this long
  bool all_blocked = false;    ///< and no other thread of the process has ever called the engine
  double exposed_seconds = 0;  ///< time that threads were blocked in calls since init()
  uint64_t calls = 0;          ///< how often a thread has asked for a result

  bool known() const { return place != Place::kUnknown; }
  bool waits() const { return phase != Phase::kNone; }

  template <class Self, class Bytes>
  static void fields(Self& r, Bytes& bytes) {
    bytes(r.rank)(r.place)(r.stage)(r.operation)(r.tensor)(r.phase)(r.peer)(r.chunk)(r.seconds);
    bytes(r.open)(r.completed)(r.blocked_seconds)(r.all_blocked)(r.exposed_seconds);
    bytes(r.calls);
  }
  /// Throws for a state that no rank of a world of this size can have.
  static RankState decode(Reader& in, int ranks);
};

/// How long a thread of the rank at this place has been blocked (negative: and others could go on);
/// 0 if it has not reported that recently.
int64_t blocked_for(const Region& region, int place, int64_t now_ns);

/// The state of a rank of this host from its records, whether or not it runs.
RankState state_of(const Region& region, const HostMap& hosts, int rank, int64_t now_ns);

// Texts.

/// `for rank 1 to write chunk 5`, where `who` is rank 1; not for Phase::kNone.
std::string wait_text(Phase phase, uint32_t chunk, const std::string& who);
/// `allreduce 'grad'`, `send to rank 1 with tag 5`.
std::string shown(const std::string& operation, const std::string& tensor, int peer);
/// `in allreduce 'x', waiting 9 s for rank 0 to write chunk 3`; empty if nothing is known.
std::string text_of(const RankState& state);

}  // namespace sirtaki
