#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/sealed_frames.h"

// Moves bytes between ranks of different hosts. A transport is a Network and a Channel; Channels,
// above them, decides which rank is lost, and when.
namespace sirtaki {

class Doorbell;
struct Sleep;

/// The time for which hosts may be silent by default: see Channel::is_silent.
inline constexpr double kSilentSeconds = 4;

/// One direction of a channel, in bytes.
struct Flow {
  uint64_t noted = 0;
  uint64_t moved = 0;  ///< the bytes of these that have moved, from the first on

  bool idle() const { return moved == noted; }
};

/// The end of a piece of memory that was noted.
struct Ticket {
  const Flow* flow = nullptr;
  uint64_t until = 0;

  /// Whether the bytes have left, or arrived: then their memory may be reused.
  bool done() const { return flow->moved >= until; }
};

/// Bytes to and from one rank of another host. They carry no tags: both ends register their pieces
/// of memory in the same order.
class Channel {
 public:
  Channel(int rank, const SealKeys& keys) : rank_(rank), keys_(keys) {}
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// The rank at the other end.
  int rank() const { return rank_; }
  /// Authenticate everything but the data.
  const SealKeys& keys() const { return keys_; }
  const Flow& out() const { return out_; }
  const Flow& in() const { return in_; }
  /// Why nothing moves any more; empty: the channel works.
  const std::string& failure() const { return failure_; }
  bool broken() const { return !failure_.empty(); }

  /// Note memory, which must stay as it is until the ticket is done. Nothing moves yet.
  virtual Ticket send(std::span<const std::byte> from) = 0;
  virtual Ticket receive(std::span<std::byte> to) = 0;
  /// Sends what can leave now; false if nothing could.
  virtual bool flush() = 0;
  /// Receives what has arrived; false if nothing has.
  virtual bool fetch() = 0;
  /// Adds what ends a driver's sleep once more of the noted memory can be moved.
  virtual void prepare(Sleep& sleep) const = 0;
  /// Forgets all noted memory, perhaps in the middle of a piece. Both flows begin anew.
  virtual void abandon() = 0;
  /// Closes the connection, which the other end notices.
  virtual void close() = 0;
  /// Whether the other host has not answered for `limit_ns` when it had to; 0: it never has to.
  virtual bool is_silent(int64_t limit_ns) = 0;

 protected:
  Flow out_;
  Flow in_;
  std::string failure_;

 private:
  const int rank_;
  const SealKeys keys_;
};

/// The purpose of a network's channels; the same at both ends.
struct NetworkUse {
  /// Distinguishes the channels of a pair of ranks.
  int first_number = 0;
  /// Not null: peers send at any time, so memory to receive is always noted, and `ready` reports
  /// the channels whose bytes have arrived. True once `guard` has rung.
  std::atomic<bool>* news = nullptr;
};

/// Makes channels for one purpose of one rank, and outlives them. Only that rank's driver uses it.
class Network {
 public:
  virtual ~Network() = default;

  /// Starts opening a channel to each of `ranks`, which do the same. Rings the driver (kControl)
  /// once `opened` has something to return.
  virtual void open(std::vector<int> ranks) = 0;
  /// The channels that have been opened, or that broke, since the last call.
  virtual std::vector<std::unique_ptr<Channel>> opened() = 0;
  /// Abandons the channels that are being opened.
  virtual void give_up() = 0;
  /// Why the channel to a rank broke, if there is a better reason than the channel's; else empty.
  virtual std::string why_broken(int rank) const = 0;
  /// The clock that measures silence.
  virtual int64_t now() const = 0;

  // ---- For peers that send at any time ----

  /// The channels that may make progress, until the next call.
  virtual std::span<Channel* const> ready() = 0;
  /// Adds what ends a driver's sleep once there are such channels.
  virtual void prepare(Sleep& sleep) const = 0;
  /// Rings the driver (kPair) instead, once; this leaves all ways to sleep open, but comes later.
  virtual void guard() = 0;
};

/// Empty: there are no other hosts.
using MakeNetwork =
    std::function<std::unique_ptr<Network>(const Doorbell& doorbell, const NetworkUse& use)>;

}  // namespace sirtaki
