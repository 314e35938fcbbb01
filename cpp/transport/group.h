#pragma once

#include <array>
#include <vector>

#include "base/task.h"
#include "transport/channel.h"
#include "transport/exchange_rules.h"
#include "transport/heaps/peer_heaps.h"
#include "transport/hosts.h"
#include "transport/memory/doorbell.h"
#include "transport/memory/handshake_policy.h"

namespace sirtaki {

class Group;

/// The group that used slots last, and its collective that did.
struct SlotUse {
  Group* group = nullptr;
  uint64_t collective = 0;
};

/// The state that the groups of one rank share.
struct Endpoint {
  /// `exchange_rules`: the same on all ranks. `shared`: null if no rank of the host has one.
  /// `silent_seconds`: see Channel::is_silent.
  Endpoint(std::shared_ptr<Region> memory, int world_rank, int place_on_host, SpinPolicy policy,
           const ExchangeRules& exchange_rules = {}, PeerHeaps* shared = nullptr,
           double silent_seconds = kSilentSeconds)
      : region(memory),
        rank(world_rank),
        place(place_on_host),
        rules(exchange_rules),
        silent_ns(ns_of(silent_seconds)),
        heaps(shared),
        doorbell(std::move(memory), place_on_host, policy) {}

  /// Two small slots, then the streaming slots.
  using AreaUse = std::array<SlotUse, 3>;

  std::shared_ptr<Region> region;
  int rank;   ///< in the world
  int place;  ///< on this host: index in the region
  ExchangeRules rules;
  int64_t silent_ns;
  PeerHeaps* heaps;
  Doorbell doorbell;
  FramePool frames;
  std::array<AreaUse, Region::kAreas> uses;  ///< process sets of one area take turns
};

/// The members of a process set on one host, seen from one of them.
///
/// Members run the same collectives in the same order. Within one, a member writes chunk q into its
/// slots, publishes it, and reads its peers' chunks once they are published. Counters only grow, so
/// a wait is a comparison; every collective advances each counter by the same amount on all
/// members.
class Group {
  using Counter = std::atomic<uint64_t> Counters::*;

  static constexpr uint64_t kStream = 2;

  struct Reached {
    const Group* group;
    Counter counter;
    const std::atomic<uint64_t>* of_member;
    uint64_t count;
    int member;
    bool operator()() const { return of_member->load() >= count; }
    Awaited awaited() const { return group->awaited(counter, count, member); }
  };
  struct AllReached {
    const Group* group;
    Counter counter;
    uint64_t count;
    bool operator()() const { return group->behind(counter, count) < 0; }
    Awaited awaited() const {
      return group->awaited(counter, count, group->behind(counter, count));
    }
  };
  /// All members have drained the collective that used the slots last.
  struct Free {
    const SlotUse* use;
    bool operator()() const {
      return use->group == nullptr || use->group->have_drained(use->collective);
    }
    Awaited awaited() const {
      const Group& group = *use->group;
      return group.awaited(&Counters::drained, use->collective,
                           group.behind(&Counters::drained, use->collective));
    }
  };
  struct Turn : GiveWay {
    explicit Turn(const Group& of) : group(of) {}
    void await_resume() const { group.endpoint_.doorbell.check_abort(); }
    const Group& group;
  };
  class Begin : public Until<Free> {
   public:
    Begin(Group& group, uint64_t slot)
        : Until<Free>(Free{&group.uses()[slot]}), group_(group), slot_(slot) {}
    int await_resume() const {
      group_.acquire(group_.uses()[slot_]);
      return static_cast<int>(slot_);
    }

   private:
    Group& group_;
    uint64_t slot_;
  };

  /// A member that publishes in a collective has drained those before it: its counter is not read.
  class AllPublished : public Until<AllReached> {
   public:
    AllPublished(Group& group, uint64_t count)
        : Until<AllReached>({&group, &Counters::published, count}), group_(group) {}
    void await_resume() const { group_.published_by_all_ = group_.collective_; }

   private:
    Group& group_;
  };

  bool have_drained(uint64_t collective) const {
    return collective < published_by_all_ || behind(&Counters::drained, collective) < 0;
  }
  /// A member other than this one whose counter is below `count`; negative: there is none.
  int behind(Counter counter, uint64_t count) const {
    for (size_t m = 0; m < counters_.size(); ++m) {
      if (static_cast<int>(m) == rank_) continue;
      if ((counters_[m]->*counter).load() < count) return static_cast<int>(m);
    }
    return Awaited::kNobody;
  }

  auto reached(int member, Counter counter, uint64_t count) const {
    const auto index = static_cast<size_t>(member);
    return Until<Reached>({this, counter, &(counters_[index]->*counter), count, member});
  }
  auto all_reached(Counter counter, uint64_t count) const {
    return Until<AllReached>({this, counter, count});
  }

 public:
  Group(Endpoint& endpoint, const HostMap& hosts, std::vector<int> world_ranks, int set);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& world_ranks() const { return ranks_; }
  /// A member's place on the host.
  int place(int member) const { return places_[static_cast<size_t>(member)]; }
  FramePool& frame_pool() const { return endpoint_.frames; }
  /// The shared heaps; null if some member has none.
  PeerHeaps* heaps() const { return heaps_; }
  HandshakePolicy& handshakes() { return handshakes_; }

  /// Awaited, begins a collective that writes the small slots; returns which of the two.
  auto begin_small() { return Begin(*this, collective_ % 2); }
  /// Awaited, begins a collective that writes the streaming slots.
  auto begin_stream() { return Begin(*this, kStream); }
  /// Ends the collective: this member reads no more from its peers' slots.
  void end();

  std::byte* small_slot(int member, int which) const {
    return slots_[static_cast<size_t>(member)] + static_cast<size_t>(which) * Region::kSmallBytes;
  }
  std::byte* stream_slots(int member) const {
    return slots_[static_cast<size_t>(member)] + 2 * Region::kSmallBytes;
  }
  /// The size of one member's streaming slots.
  size_t stream_bytes() const { return Region::stream_bytes(area_); }

  /// Publishes one more chunk, which the peers may then read.
  void publish();
  /// Counts one more chunk of the peers that this member has finished reading.
  void consume();
  /// Keep the counters equal on all members if only some publish or consume; nobody waits for
  /// these.
  void skip_published(uint32_t count);
  void skip_consumed(uint32_t count);

  /// Awaited: `member` has published `count` chunks of this collective.
  auto published(int member, uint32_t count) const {
    return reached(member, &Counters::published, published_before_ + count);
  }
  /// Awaited: all other members have.
  auto all_published(uint32_t count) { return AllPublished(*this, published_before_ + count); }
  /// Awaited: `member` has consumed `count` chunks of this collective.
  auto consumed(int member, uint32_t count) const {
    return reached(member, &Counters::consumed, consumed_before_ + count);
  }
  /// Awaited: all other members have.
  auto all_consumed(uint32_t count) const {
    return all_reached(&Counters::consumed, consumed_before_ + count);
  }
  /// Awaited, gives others a turn in the middle of long work; throws once the world is aborted.
  auto give_way() const { return Turn(*this); }
  /// Awaited: no peer reads this member's slots for this group any more.
  auto left() const { return all_reached(&Counters::drained, collective_); }

 private:
  Endpoint::AreaUse& uses() const { return endpoint_.uses[static_cast<size_t>(area_)]; }
  void acquire(SlotUse& use);
  Awaited awaited(Counter counter, uint64_t count, int member) const;
  void tell_members() const;

  Endpoint& endpoint_;
  std::vector<int> ranks_;
  int area_;
  std::vector<int> places_;  // of the members on the host
  std::vector<int> peers_;   // places of the other members
  int rank_;
  PeerHeaps* heaps_ = nullptr;
  HandshakePolicy handshakes_;
  std::vector<Counters*> counters_;
  std::vector<std::byte*> slots_;
  uint64_t collective_ = 0;        // number of the current or next collective
  uint64_t published_by_all_ = 0;  // in this collective, when last read
  uint64_t published_ = 0;         // own counters, cached
  uint64_t consumed_ = 0;
  // The counters at the start of the current collective, on all members.
  uint64_t published_before_ = 0;
  uint64_t consumed_before_ = 0;
};

}  // namespace sirtaki
