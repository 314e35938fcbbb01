#pragma once

#include <vector>

#include "collectives/op.h"
#include "transport/group.h"

namespace sirtaki {

/// Lets the members of a collective show each other where their streams lie in their shared heaps.
/// From then on they read and write there, until they part.
///
/// A stream is described by its segments: one that lies in no shared heap has a null pointer.
class Handshake {
 public:
  /// `bytes`: the size that the policy was asked about.
  Handshake(Group& group, Kind kind, size_t bytes)
      : group_(group),
        kind_(static_cast<uint32_t>(kind)),
        bytes_(bytes),
        seen_(static_cast<size_t>(group.size())) {}
  /// If the members have not parted, a peer may write late, so the stream `written` is abandoned.
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  FramePool& frame_pool() const { return group_.frame_pool(); }

  /// Awaited, shows this member's streams and reads those of all members. `written`: the number of
  /// the stream that others write; -1: none.
  Task meet(std::vector<const Segments*> own, int written);
  /// Whether some member cannot access the others' memory, or has too many segments to list: then
  /// no member may access another one's. The same on all members.
  bool declined() const { return declined_; }

  /// A stream of a member, by its number there. Throws if the member did not show it.
  const Segments& seen(int member, size_t stream) const;
  /// The same with a known length. Throws if the length differs.
  const Segments& seen(int member, size_t stream, size_t bytes) const;

  /// Awaited: no member accesses another one's memory any more. `bytes` were moved in the heaps.
  Task part(size_t bytes);
  /// Ends the handshake if no member accessed another one's memory.
  void leave() { end(false); }

 private:
  void show(const std::vector<const Segments*>& own, std::byte* table) const;
  bool list(const std::vector<const Segments*>& own, std::vector<uint64_t>& words) const;
  bool maps_all() const;
  void read(int member, const std::byte* table);
  [[noreturn]] void refuse(int member) const;
  void end(bool shared);

  Group& group_;
  const uint32_t kind_;
  const size_t bytes_;
  std::vector<std::vector<Segments>> seen_;  ///< [member][stream]
  int written_ = -1;
  bool open_ = false;
  bool declined_ = false;
};

}  // namespace sirtaki
