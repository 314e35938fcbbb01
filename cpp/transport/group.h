#pragma once

#include <array>
#include <vector>

#include "transport/doorbell.h"
#include "transport/hosts.h"
#include "transport/tcp.h"

namespace sirtaki {

class Group;

/// Slot memory of one rank is shared by all its process sets; this remembers who used it last.
struct SlotUse {
  Group* group = nullptr;
  uint64_t collective = 0;
};

/// What the groups of one rank have in common.
struct Endpoint {
  /// `sockets`: to each peer on another host; as many on all ranks.
  Endpoint(std::shared_ptr<Region> memory, int world_rank, int place_on_host, SpinPolicy policy,
           int sockets = 1)
      : region(memory),
        rank(world_rank),
        place(place_on_host),
        sockets_per_peer(sockets),
        doorbell(std::move(memory), place_on_host, policy) {}
  /// In a world on one host.
  Endpoint(std::shared_ptr<Region> memory, int world_rank, SpinPolicy policy)
      : Endpoint(std::move(memory), world_rank, world_rank, policy) {}

  /// Returns once the rank at `peer` on this host has made `ready()` true; bytes from and to other
  /// hosts move meanwhile.
  template <class Ready>
  void wait_for(int peer, Ready ready) {
    if (sockets != nullptr && sockets->busy() && sockets->move_until(ready)) return;
    doorbell.wait_for(peer, ready);
  }

  std::shared_ptr<Region> region;
  int rank;   ///< in the world
  int place;  ///< on this host: index in the region
  int sockets_per_peer;
  Doorbell doorbell;
  Sockets* sockets = nullptr;   ///< where there are other hosts
  std::array<SlotUse, 3> uses;  ///< two small slots, then the streaming slots
  size_t chunk_bytes = 96 << 10;
};

/// The members of a process set (or a pair) on one host, seen from one of them.
///
/// Members run the same collectives in the same order. Within one, a member writes chunk q into its
/// slots, publishes it, and reads its peers' chunks once they are published. Counters only grow, so
/// a wait is a comparison; every collective advances each counter by the same amount on all
/// members.
class Group {
 public:
  /// `counters` is indexed by member (`indexed_by_place`: by the members' places on the host).
  Group(Endpoint& endpoint, const HostMap& hosts, std::vector<int> world_ranks, Counters* counters,
        bool indexed_by_place);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& world_ranks() const { return ranks_; }
  size_t chunk_bytes() const { return endpoint_.chunk_bytes; }

  /// Begins a collective that writes the small slots; returns which of the two.
  int begin_small();
  /// Begins a collective that writes the streaming slots.
  void begin_stream();
  /// Ends the collective: this member reads nothing more from its peers' slots.
  void end();

  std::byte* small_slot(int member, int which) const {
    return slots_[static_cast<size_t>(member)] + static_cast<size_t>(which) * Region::kSmallBytes;
  }
  std::byte* stream_slots(int member) const {
    return slots_[static_cast<size_t>(member)] + 2 * Region::kSmallBytes;
  }

  /// The chunks written so far, one more than before, may be read by the peers.
  void publish();
  /// This member has finished with one more chunk of its peers.
  void consume();
  /// Keep the counters equal on all members where only some publish or consume; nobody waits for
  /// these.
  void skip_published(uint32_t count);
  void skip_consumed(uint32_t count);
  /// Waits until `member` has published `count` chunks of this collective.
  void await_published(int member, uint32_t count) const;
  /// Waits until every other member has consumed `count` chunks of this collective.
  void await_consumed(uint32_t count) const;
  void await_consumed(int member, uint32_t count) const;

  /// Waits until no peer reads this member's slots on behalf of this group.
  void leave() const { await_drained(collective_); }

  /// All members have drained the group's last collective; no peer reads a slot any more.
  void await_drained(uint64_t collective) const;

 private:
  void acquire(SlotUse& use);
  void tell_members() const;
  static bool reached(const std::atomic<uint64_t>& counter, uint64_t count) {
    return counter.load(std::memory_order_acquire) >= count;
  }

  Endpoint& endpoint_;
  std::vector<int> ranks_;
  std::vector<int> places_;  // of the members on the host
  std::vector<int> peers_;   // places of the other members
  int rank_;
  std::vector<Counters*> counters_;
  std::vector<std::byte*> slots_;
  uint64_t collective_ = 0;  // number of the current or next collective
  uint64_t published_ = 0;   // own counters, cached
  uint64_t consumed_ = 0;
  // The counters at the start of the current collective, on all members.
  uint64_t published_before_ = 0;
  uint64_t consumed_before_ = 0;
};

}  // namespace sirtaki
