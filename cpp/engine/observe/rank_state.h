#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "engine/observe/recorder.h"
#include "transport/hosts.h"

namespace sirtaki {

/// What a rank is doing: of its operations and messages the one that tells most.
struct RankState {
  enum class Place : uint8_t { kUnknown, kWorld, kGone };

  int32_t rank = -1;
  Place place = Place::kUnknown;  ///< where it is; what follows is known of one in the world
  Stage stage = Stage::kNone;     ///< kNone: it never had an operation
  std::string operation{};        ///< `allreduce`; of a message `send` or `receive`
  std::string tensor{};           ///< `grad`; of a message `tag 5`
  Phase phase = Phase::kNone;     ///< what it waits for
  int32_t peer = -1;              ///< who must do that; -1: nobody in particular
  uint32_t chunk = Awaited::kNoChunk;
  double seconds = 0;          ///< since when: at that stage, or waiting where it waits
  uint32_t open = 0;           ///< operations and messages that have not ended
  uint64_t completed = 0;      ///< operations that have, since init()
  double blocked_seconds = 0;  ///< a thread is blocked for it, and nothing has moved for so long
  bool all_blocked = false;    ///< and no other thread of the process has ever called the engine
  double exposed_seconds = 0;  ///< since init() threads were blocked in calls for so long
  uint64_t calls = 0;          ///< how often a thread has asked for a result

  bool known() const { return place != Place::kUnknown; }
  bool waits() const { return phase != Phase::kNone; }

  template <class Self, class Bytes>
  static void fields(Self& r, Bytes& bytes) {
    bytes(r.rank)(r.place)(r.stage)(r.operation)(r.tensor)(r.phase)(r.peer)(r.chunk)(r.seconds);
    bytes(r.open)(r.completed)(r.blocked_seconds)(r.all_blocked)(r.exposed_seconds);
    bytes(r.calls);
  }
  /// Throws for what no rank of a world of so many says.
  static RankState decode(Reader& in, int ranks);
};

/// Of a rank of this host as it has written it down, whether or not it runs.
RankState state_of(const Region& region, const HostMap& hosts, int rank, int64_t now_ns);

// In words.

/// `for rank 1 to write chunk 5`, where `who` is rank 1; not of Phase::kNone.
std::string wait_text(Phase phase, uint32_t chunk, const std::string& who);
/// `allreduce 'grad'`, `send to rank 1 with tag 5`.
std::string shown(const std::string& operation, const std::string& tensor, int peer);
/// `in allreduce 'x', waiting 9 s for rank 0 to write chunk 3`; empty where nothing is known.
std::string text_of(const RankState& state);

}  // namespace sirtaki
