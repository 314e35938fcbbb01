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
#include "transport/memory/bells.h"
#include "transport/memory/byte_ring.h"
#include "transport/memory/flight_record.h"
#include "transport/memory/pair_ring.h"

namespace sirtaki {

/// What a sleeping driver (the thread that makes progress for its rank) can be woken by.
enum News : uint32_t {
  kData = 1,     ///< a peer's counter moved
  kControl = 2,  ///< a message of the sequencer
  kRequest = 4,  ///< a message to the sequencer
  kPair = 16,    ///< something in a pair ring
  kPolls = 32,   ///< nothing new: it sleeps in poll(), which its bell ends
};

/// Why a world ends early.
struct Loss {
  int rank;              ///< who is lost
  int reporter = -1;     ///< whose connection to it broke; -1: its process or host is gone
  std::string reason{};  ///< empty where nothing more is known
  /// kTimeout: nobody is lost, but one has been waited for too long, as `reason` tells in full.
  ErrorCode code = ErrorCode::kPeerLost;
};

/// Says that a world ends; written once, by whoever sees it first, and in one piece, for that
/// process may be killed at any moment.
struct Abort {
  /// 0: the world goes on; else the lost rank + 1, and in the upper half the place of the rank that
  /// says so, whose block has the rest.
  std::atomic<uint64_t> lost;
};

/// What the leader of the host must be told.
struct alignas(128) LeaderBlock {
  Parking relay;  ///< its relay, which must be woken to see what is in the rings
  /// Rank 0: rings hold a message that cannot wait for the next look.
  std::atomic<uint32_t> urgent;
};

/// Per rank: where its driver sleeps and whether it left in good order.
struct alignas(128) RankBlock {
  static constexpr uint32_t kPeerShift = 8;
  static constexpr uint32_t kAnyPeer = 0xffffff;

  /// Of the engine thread, and of a thread in a blocking call. What the driver wants is the News it
  /// sleeps for and the peer whose kData it needs; a thread that does not drive wants nothing.
  Parking engine, caller;
  std::atomic<uint32_t> bye;
  std::atomic<uint32_t> data_sleeps;  ///< how often its driver slept for a peer's counter
  std::atomic<uint32_t> turns;        ///< of its engine thread: grows when that is woken

  /// For how long a thread of this rank's process has been blocked in a call with nothing moving
  /// (negative: and others could go on), and when it wrote that down, behind its kBlockedRecord.
  std::atomic<int64_t> blocked_ns;
  std::atomic<int64_t> blocked_at_ns;

  /// What this rank knows of a loss, complete before it says so in Abort.
  int32_t loss_reporter;
  int32_t loss_code;
  char loss_reason[480];

  /// For how long its threads were blocked in calls that wait, since when one is (0: none is), and
  /// how often one has asked for a result; written by its process alone.
  alignas(128) std::atomic<int64_t> waited_ns;
  std::atomic<int64_t> waits_since_ns;
  std::atomic<uint64_t> waits;
};

/// Per rank and process set: counters that its peers wait for, perhaps asleep, and that only grow.
struct alignas(128) Counters {
  std::atomic<uint64_t> published;  ///< chunks this rank has made readable in its slots
  std::atomic<uint64_t> consumed;   ///< chunks of its peers this rank has finished reading
  /// Collectives this rank has finished. Peers seldom look at it, and it lies on a line of its own,
  /// so that counting does not wait for the line that they look at all the time.
  alignas(128) std::atomic<uint64_t> drained;
};

/// Per rank: what its peers need for messages from one to another.
struct alignas(128) PairBlock {
  /// Its memory is no longer what it offered to its peers.
  std::atomic<uint32_t> closed;
  /// Where it can be read: the number of its process, as it sees that itself, and at this address
  /// the cookie, which proves to a reader that the number means the same process to both.
  int32_t process;
  uint64_t cookie_address;
  std::array<uint64_t, 2> cookie;
};

/// The shared memory of one host's ranks: control rings, counters and data slots. All of it is
/// indexed by the ranks' places on the host.
///
/// It lives in a memfd handed over by the rendezvous (processes) or in anonymous memory (threads,
/// for tests), so nothing is left behind when every process is killed. Pages never touched cost
/// nothing.
class Region {
 public:
  static constexpr int kMaxSets = 1024;
  static constexpr size_t kRecords = 4096;                ///< of a rank: its latest operations
  static constexpr size_t kMessageRecord = kRecords;      ///< behind them: the message it waits for
  static constexpr size_t kBlockedRecord = kRecords + 1;  ///< and what a thread of it is blocked in
  static constexpr size_t kSmallBytes = 16 << 10;         ///< one small slot; an area has two
  static constexpr size_t kWorldStreamBytes = 3 << 20;    ///< slots of the world's streams
  static constexpr size_t kSetStreamBytes = 1 << 20;      ///< of another process set's
  /// What a rank writes for its peers to read lies in areas: the world has one, and the other
  /// process sets share the rest by their numbers, so that several are under way at a time.
  static constexpr int kAreas = 5;
  static int area_of_set(int set) { return set == 0 ? 0 : 1 + (set - 1) % (kAreas - 1); }
  static size_t stream_bytes(int area) { return area == 0 ? kWorldStreamBytes : kSetStreamBytes; }

  static constexpr size_t kWorldAreaBytes = 2 * kSmallBytes + kWorldStreamBytes;
  static constexpr size_t kSetAreaBytes = 2 * kSmallBytes + kSetStreamBytes;
  /// Of one rank's areas; at the end there are those of all ranks, by their places.
  static constexpr size_t kSlotBytes = kWorldAreaBytes + (kAreas - 1) * kSetAreaBytes;

  /// Bytes of memory for `ranks` ranks; the memfd must be at least that long.
  static size_t bytes(int ranks);

  /// Maps the memfd of a host; `bells`, where its ranks sleep in poll().
  static std::shared_ptr<Region> map(Fd memfd, int ranks, Bells bells = {});
  /// Memory for ranks that are threads of this process.
  static std::shared_ptr<Region> anonymous(int ranks);

  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  int ranks() const { return ranks_; }
  const Bells& bells() const { return bells_; }
  /// Of the engines that use it, as this process knows; frames in the rings carry it.
  uint32_t generation() const { return generation_.load(std::memory_order_relaxed); }
  void begin(uint32_t generation) { generation_.store(generation, std::memory_order_relaxed); }
  /// Makes all but the slots as new; while no engine of any rank uses it.
  void clear();
  /// The rank whose loss ended the world, -1 as long as it goes on.
  int lost_rank() const { return lost_rank_in(at<Abort>(0)->lost.load(std::memory_order_acquire)); }
  /// Only once a rank was lost.
  Loss loss() const;
  /// Notes a loss on behalf of the rank at `place`; does nothing if a rank was lost before.
  void set_loss(int place, const Loss& loss);
  LeaderBlock& leader() const { return *at<LeaderBlock>(layout_.leader); }
  RankBlock& rank(int place) const { return at<RankBlock>(layout_.ranks)[place]; }
  ByteRing& up(int place) const { return at<ByteRing>(layout_.up)[place]; }
  ByteRing& down(int place) const { return at<ByteRing>(layout_.down)[place]; }
  PairBlock& pair_block(int place) const { return at<PairBlock>(layout_.pairs)[place]; }
  /// One bit for each place whose ring to this one has news, in so many words.
  std::atomic<uint64_t>* pair_flags(int place) const {
    return at<std::atomic<uint64_t>>(layout_.pair_flags +
                                     static_cast<size_t>(place) * flag_bytes());
  }
  size_t pair_flag_words() const { return (static_cast<size_t>(ranks_) + 63) / 64; }
  /// The stream from one place to another.
  PairRing pair_ring(int from, int to, PairRing::End end) const;
  PairRing::Positions& pair_ring_positions(int from, int to) const;
  /// Counters of a process set, indexed by place.
  Counters* set_counters(int set) const {
    return at<Counters>(layout_.sets) + static_cast<size_t>(set) * static_cast<size_t>(ranks_);
  }
  /// What a rank says of its operations; it alone writes them.
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

  struct Layout {
    explicit Layout(int ranks);
    size_t leader, ranks, up, down, pairs, pair_flags, pair_rings, sets, records, slots, total;
  };
  /// Of one rank's words, on cache lines of their own.
  size_t flag_bytes() const { return (pair_flag_words() * sizeof(uint64_t) + 127) / 128 * 128; }

  Region(int fd, int ranks, Bells bells);

  static int lost_rank_in(uint64_t said) {
    return std::max(static_cast<int32_t>(said & UINT32_MAX), 0) - 1;
  }

  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  Layout layout_;
  int ranks_;
  const Bells bells_;
  std::byte* base_;
  std::atomic<uint32_t> generation_{kFirstGeneration};
  std::mutex loss_mutex_;  ///< among the threads of this process
};

}  // namespace sirtaki
