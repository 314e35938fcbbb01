#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/still_time.h"
#include "pairs/matching.h"
#include "pairs/message.h"
#include "pairs/wire.h"

namespace sirtaki {

inline constexpr size_t kEager = 64 << 10;  ///< the longest message that is sent unasked
inline constexpr size_t kPart = 2 << 20;    ///< the longest part of an offered one
/// The most memory that unreceived eager messages of one sender may take.
inline constexpr uint64_t kCredit = 64 << 20;
inline uint64_t cost_of(uint64_t bytes) { return bytes + 256; }

/// A message that was offered and is wanted, in transfer.
struct Incoming {
  std::unique_ptr<Transfer> receive;
  Arrived offer;
  uint64_t got = 0;
};

/// A message that the receiver asked for.
struct Asked {
  Transfer send;
  uint64_t key;
  uint64_t sent = 0;
};

/// One other rank.
struct Peer {
  explicit Peer(int of) : rank(of) {}

  bool is_here() const { return place >= 0; }

  // Of Wires.
  const int rank;
  int place = -1;  ///< on this host; -1: it is on another one
  Wire wire;
  Channel* channel = nullptr;  ///< to another host, once it is open
  bool clogged = false;        ///< its frames wait for room in the channel

  // Of Pairs.
  std::unordered_map<uint64_t, Transfer> offered;
  std::list<Asked> asked;
  std::vector<std::unique_ptr<Incoming>> expected;  ///< in parts
  std::unique_ptr<Transfer> receiving;              ///< where the eager message goes
  std::unique_ptr<Arrived> arriving;                ///< or where it is kept
  Incoming* part = nullptr;                         ///< whose part is arriving
  uint64_t credit = kCredit;                        ///< bytes that may be sent eagerly
  uint64_t sent = 0;                                ///< messages, which arrive in order
  uint64_t came = 0;
  uint64_t outstanding = 0;  ///< eager bytes received whose credit has not been returned
  uint64_t owed = 0;         ///< of these, bytes that are no longer kept
  uint64_t stirred = 0;      ///< progress when last checked
  StillTime stuck;
};

}  // namespace sirtaki
