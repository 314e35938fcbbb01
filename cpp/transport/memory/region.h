#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "base/frames.h"
#include "base/parking.h"
#include "transport/memory/byte_ring.h"
#include "transport/memory/event_descriptors.h"
#include "transport/memory/flight_record.h"
#include "transport/memory/rank_totals.h"

namespace sirtaki {

/// The events that can wake a sleeping driver (the thread that makes progress for its rank).
enum News : uint32_t {
  kData = 1,     ///< a peer's counter changed
  kControl = 2,  ///< a message from the sequencer
  kRequest = 4,  ///< a message to the sequencer
  kPair = 16,    ///< something in a pair ring
  kPolls = 32,   ///< no event: it sleeps in poll(), which its event descriptor ends
};

/// Why a world ends early.
struct Loss {
  int rank;              ///< the lost rank
  int reporter = -1;     ///< the rank whose connection to it broke; -1: its process or host is gone
  std::string reason{};  ///< empty if nothing more is known
  /// kTimeout: no rank is lost, but one took too long; `reason` has the full text.
  ErrorCode code = ErrorCode::kPeerLost;
};

/// Announces that a world ends. The first rank that notices writes it, once and in one word,
/// because that process may be killed at any moment.
struct Abort {
  /// 0: the world continues; else the lost rank + 1 and, in the upper half, the place of the
  /// reporting rank, whose block has the rest.
  std::atomic<uint64_t> lost;
};

/// What the leader of the host must be notified of.
struct alignas(128) LeaderBlock {
  Parking relay;  ///< where its relay sleeps, which must be woken to read the rings
  /// Rank 0: the rings hold a message that cannot wait until the next check.
  std::atomic<uint32_t> urgent;
};

/// Per rank: where its driver sleeps and how it ended.
struct alignas(128) RankBlock {
  static constexpr uint32_t kPeerShift = 8;
  static constexpr uint32_t kAnyPeer = 0xffffff;

  /// Of the engine thread, and of a thread in a blocking call. The driver wants the News that it
  /// sleeps for and the peer whose kData it needs; a thread that does not drive wants nothing.
  Parking engine, caller;
  std::atomic<uint32_t> bye;
  std::atomic<uint32_t> data_sleeps;  ///< how often its driver has slept for a peer's counter
  std::atomic<uint32_t> turns;        ///< of its engine thread: grows when the thread is woken
  std::atomic<int32_t> core;          ///< + 1, where its driver last waited; 0: it never did

  /// How long a thread of this rank's process has been blocked in a call while nothing moved
  /// (negative: and others could go on), and when that was written, after its kBlockedRecord.
  std::atomic<int64_t> blocked_ns;
  std::atomic<int64_t> blocked_at_ns;

  /// What this rank knows of a loss, complete before the rank announces it in Abort.
  int32_t loss_reporter;
  int32_t loss_code;
  char loss_reason[480];

  /// How long its threads were blocked in calls that wait, since when one is (0: none is), and how
  /// often one has asked for a result; only its process writes them.
  alignas(128) std::atomic<int64_t> waited_ns;
  std::atomic<int64_t> waits_since_ns;
  std::atomic<uint64_t> waits;

  RankTotals totals;
};

/// Per rank and process set: counters that only grow, and that its peers wait for, perhaps asleep.
struct alignas(128) Counters {
  std::atomic<uint64_t> published;  ///< chunks in its slots that this rank has made readable
  std::atomic<uint64_t> consumed;   ///< chunks of its peers that this rank has finished reading
  /// Collectives that this rank has finished. Peers seldom read it, and it has a line of its own,
  /// so that counting does not wait for the line that they read all the time.
  alignas(128) std::atomic<uint64_t> drained;
};

/// Per rank: what its peers need for messages from one rank to another.
struct alignas(128) PairBlock {
  /// Its memory is no longer what it offered to its peers.
  std::atomic<uint32_t> closed;
  /// Where its memory can be read: its process ID, as it sees that itself, and at this address the
  /// cookie, which proves to a reader that the ID means the same process to both.
  int32_t process;
  uint64_t cookie_address;
  std::array<uint64_t, 2> cookie;
};

/// The shared memory of one host's ranks: control rings, counters and data slots. All of it is
/// indexed by the ranks' places on the host.
///
/// It lives in a memfd from the rendezvous (processes) or in anonymous memory (threads, for tests),
/// so nothing is left when every process is killed. Untouched pages cost nothing.
class Region {
 public:
  static constexpr int kMaxSets = 1024;
  static constexpr size_t kRecords = 4096;                ///< of a rank: its latest operations
  static constexpr size_t kMessageRecord = kRecords;      ///< after them: the message it waits for
  static constexpr size_t kBlockedRecord = kRecords + 1;  ///< and the call that blocks a thread
  static constexpr size_t kSmallBytes = 16 << 10;         ///< one small slot; an area has two
  static constexpr size_t kWorldStreamBytes = 3 << 20;    ///< streaming slots of the world
  static constexpr size_t kSetStreamBytes = 1 << 20;      ///< those of another process set
  /// Areas hold what a rank writes for its peers to read: the world has one, and the other process
  /// sets share the rest by their numbers, so that several can be in progress.
  static constexpr int kAreas = 5;
  static int area_of_set(int set) { return set == 0 ? 0 : 1 + (set - 1) % (kAreas - 1); }
  static size_t stream_bytes(int area) { return area == 0 ? kWorldStreamBytes : kSetStreamBytes; }

  static constexpr size_t kWorldAreaBytes = 2 * kSmallBytes + kWorldStreamBytes;
  static constexpr size_t kSetAreaBytes = 2 * kSmallBytes + kSetStreamBytes;
  /// The size of one rank's areas; the areas of all ranks, by place, are at the end.
  static constexpr size_t kSlotBytes = kWorldAreaBytes + (kAreas - 1) * kSetAreaBytes;

  /// The size of memory for `ranks` ranks; the memfd must be at least that long.
  static size_t bytes(int ranks) { return Layout(ranks).total; }

  /// Maps the memfd of a host; `event_descriptors` end the poll() of its ranks.
  static std::shared_ptr<Region> map(Fd memfd, int ranks, EventDescriptors event_descriptors = {});
  /// Makes memory for ranks that are threads of this process.
  static std::shared_ptr<Region> anonymous(int ranks);

  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  int ranks() const { return ranks_; }
  const EventDescriptors& event_descriptors() const { return event_descriptors_; }
  /// The generation of the engines that use it, to this process; frames in the rings carry it.
  uint32_t generation() const { return generation_.load(std::memory_order_relaxed); }
  void begin(uint32_t generation) { generation_.store(generation, std::memory_order_relaxed); }
  /// Resets all but the slots; only while no engine of any rank uses it.
  void clear();
  /// The rank whose loss ended the world; -1 while it continues.
  int lost_rank() const { return lost_rank_in(at<Abort>(0)->lost.load(std::memory_order_acquire)); }
  /// Only after a rank was lost.
  Loss loss() const;
  /// Records a loss for the rank at `place`; does nothing if a rank was lost before.
  void set_loss(int place, const Loss& loss);
  LeaderBlock& leader() const { return *at<LeaderBlock>(layout_.leader); }
  RankBlock& rank(int place) const { return at<RankBlock>(layout_.ranks)[place]; }
  /// Control messages from a place to the leader, and from the leader to it.
  ByteRing up(int place, RingEnd end) const { return control_ring(layout_.up, place, end); }
  ByteRing down(int place, RingEnd end) const { return control_ring(layout_.down, place, end); }
  PairBlock& pair_block(int place) const { return at<PairBlock>(layout_.pairs)[place]; }
  /// Words with one bit for each place whose ring to this one has news.
  std::atomic<uint64_t>* pair_flags(int place) const {
    return at<std::atomic<uint64_t>>(layout_.pair_flags +
                                     static_cast<size_t>(place) * flag_bytes());
  }
  size_t pair_flag_words() const { return (static_cast<size_t>(ranks_) + 63) / 64; }
  /// The stream from one place to another.
  ByteRing pair_ring(int from, int to, RingEnd end) const;
  /// Counters of a process set, indexed by place.
  Counters* set_counters(int set) const {
    return at<Counters>(layout_.sets) + static_cast<size_t>(set) * static_cast<size_t>(ranks_);
  }
  /// A rank's records of its operations; only that rank writes them.
  FlightRecord* records(int place) const {
    return at<FlightRecord>(layout_.records) + static_cast<size_t>(place) * kAllRecords;
  }
  /// An area of a rank: two small slots, then those of the streaming collectives.
  std::byte* slots(int place, int area) const {
    const size_t before =
        area == 0 ? 0 : kWorldAreaBytes + static_cast<size_t>(area - 1) * kSetAreaBytes;
    return at<std::byte>(layout_.slots) + static_cast<size_t>(place) * kSlotBytes + before;
  }

 private:
  static constexpr size_t kAllRecords = kRecords + 2;
  static constexpr uint32_t kControlBytes = 32 << 10;
  static constexpr size_t kControlRing = sizeof(ByteRing::Positions) + kControlBytes;

  struct Layout {
    explicit Layout(int ranks);
    size_t leader, ranks, up, down, pairs, pair_flags, pair_rings, sets, records, slots, total;
  };
  /// The size of one rank's words, on cache lines of their own.
  size_t flag_bytes() const { return (pair_flag_words() * sizeof(uint64_t) + 127) / 128 * 128; }

  ByteRing control_ring(size_t rings, int place, RingEnd end) const {
    const size_t offset = rings + static_cast<size_t>(place) * kControlRing;
    return {*at<ByteRing::Positions>(offset), kControlBytes, end};
  }

  Region(int fd, int ranks, EventDescriptors event_descriptors);

  static int lost_rank_in(uint64_t said) {
    return std::max(static_cast<int32_t>(said & UINT32_MAX), 0) - 1;
  }

  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  Layout layout_;
  int ranks_;
  const EventDescriptors event_descriptors_;
  std::byte* base_;
  std::atomic<uint32_t> generation_{kFirstGeneration};
  std::mutex loss_mutex_;  ///< among the threads of this process
};

}  // namespace sirtaki
