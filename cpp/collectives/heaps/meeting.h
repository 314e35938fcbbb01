#pragma once

#include <vector>

#include "collectives/op.h"
#include "transport/group.h"

namespace sirtaki {

/// Where the members of a collective show each other where their streams lie in their shared heaps.
/// From then on they read and write there, until they part.
///
/// Where a stream lies is told by segments: what lies in no shared heap has a null pointer.
class Meeting {
 public:
  /// `bytes`: as the policy was asked.
  Meeting(Group& group, Kind kind, size_t bytes)
      : group_(group),
        kind_(static_cast<uint32_t>(kind)),
        bytes_(bytes),
        seen_(static_cast<size_t>(group.size())) {}
  /// If the members have not parted, a peer may write late: `written` is abandoned to it.
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  FramePool& frame_pool() const { return group_.frame_pool(); }

  /// Awaited, shows the own streams and sees those of all members. `written`: the number of the
  /// one that others write; -1: none.
  Task meet(std::vector<const Segments*> own, int written);
  /// Some member cannot touch the others' memory, or has too many segments to tell of: nobody is to
  /// touch another one's. The same on all members.
  bool declined() const { return declined_; }

  /// A stream of a member, by its number there. Throws if it has shown none.
  const Segments& seen(int member, size_t stream) const;
  /// The same, of which such a length is known. Throws for another one.
  const Segments& seen(int member, size_t stream, size_t bytes) const;

  /// Awaited: nobody reads or writes another one's memory any more. `bytes` were moved so.
  Task part(size_t bytes);
  /// The same where nobody has.
  void leave();

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
