#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sealed_frames.h"

// What moves bytes between ranks of different hosts. A transport is a Network and a Channel; who is
// lost, and when, is decided above them, in Channels.
namespace sirtaki {

class Doorbell;
struct Sleep;

/// As long as hosts may be silent by default: see Channel::is_silent.
inline constexpr double kSilentSeconds = 4;

/// One direction of a channel, in bytes.
struct Flow {
  uint64_t noted = 0;
  uint64_t moved = 0;  ///< of these, the first so many

  bool idle() const { return moved == noted; }
};

/// The end of something that was noted.
struct Ticket {
  const Flow* flow = nullptr;
  uint64_t until = 0;

  /// The bytes have left, or arrived: their memory may be used again.
  bool done() const { return flow->moved >= until; }
};

/// Bytes to and from one rank of another host. They carry no tags: both ends name their pieces of
/// memory in the same order.
class Channel {
 public:
  Channel(int rank, const SealKeys& keys) : rank_(rank), keys_(keys) {}
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Who is at the other end.
  int rank() const { return rank_; }
  /// They vouch for what is no data.
  const SealKeys& keys() const { return keys_; }
  const Flow& out() const { return out_; }
  const Flow& in() const { return in_; }
  /// Why nothing moves any more; empty: the channel is whole.
  const std::string& failure() const { return failure_; }
  bool broken() const { return !failure_.empty(); }

  /// Note memory, which stays as it is until the ticket is done. Nothing moves yet.
  virtual Ticket send(std::span<const std::byte> from) = 0;
  virtual Ticket receive(std::span<std::byte> to) = 0;
  /// Moves what can leave now; false if that was nothing.
  virtual bool flush() = 0;
  /// The same of what has come.
  virtual bool fetch() = 0;
  /// Adds what ends a driver's sleep once more of what is noted can be moved.
  virtual void prepare(Sleep& sleep) const = 0;
  /// Forgets all memory that is noted, perhaps in the middle. Both flows begin anew.
  virtual void abandon() = 0;
  /// Hangs up, which the other end notices.
  virtual void close() = 0;
  /// The other host has not answered for so long, though it had to; 0: it never has to.
  virtual bool is_silent(int64_t limit_ns) = 0;

 protected:
  Flow out_;
  Flow in_;
  std::string failure_;

 private:
  const int rank_;
  const SealKeys keys_;
};

/// What the channels of a network are for; the same at both ends.
struct NetworkUse {
  /// Tells the channels of a pair of ranks apart.
  int first_number = 0;
  /// Not null: peers send when they want to, so memory to receive is always noted, and `ready`
  /// tells whose bytes have come. True once `guard` has rung.
  std::atomic<bool>* news = nullptr;
};

/// Makes channels, which it outlives, for one purpose of one rank. Only that rank's driver uses it.
class Network {
 public:
  virtual ~Network() = default;

  /// Begins to open a channel to each of `ranks`, which do the same. Rings the driver (kControl)
  /// once there is something for `opened`.
  virtual void open(std::vector<int> ranks) = 0;
  /// Channels that have been opened, or are broken, since this was last asked.
  virtual std::vector<std::unique_ptr<Channel>> opened() = 0;
  /// Gives up what is being opened.
  virtual void give_up() = 0;
  /// Why the channel to a rank broke, where somebody knows better than the channel; else empty.
  virtual std::string why_broken(int rank) const = 0;
  /// The time by which patience is measured.
  virtual int64_t now() const = 0;
  /// Memory that much will be sent from or received in, for transports that must know beforehand.
  virtual void keep(std::span<std::byte>) {}

  // ---- Where peers send when they want to ----

  /// Channels that may get further, until this is asked again.
  virtual std::span<Channel* const> ready() = 0;
  /// Adds what ends a driver's sleep once there are such channels.
  virtual void prepare(Sleep& sleep) const = 0;
  /// Rings the driver (kPair) instead, once, which disturbs no other way to sleep but comes later.
  virtual void guard() = 0;
};

/// Empty: there are no other hosts.
using MakeNetwork =
    std::function<std::unique_ptr<Network>(const Doorbell& doorbell, const NetworkUse& use)>;

}  // namespace sirtaki
