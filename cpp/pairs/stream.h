#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "transport/channel.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {

/// Bytes to and from one other rank, in order. Nothing blocks.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Takes as much of the first and then of the second piece as it can. What it did not take is
  /// what it must be given next.
  virtual size_t write(std::span<const std::byte> first, std::span<const std::byte> second) = 0;
  /// Gives at most so many bytes; null: throws them away. Where it gives fewer, the rest is what it
  /// must be asked for next.
  virtual size_t read(std::byte* to, size_t bytes) = 0;
  /// What was read will not be looked at again.
  virtual void release() = 0;
  /// Memory that was only written or read in part is used no longer.
  virtual void abandon() = 0;
};

/// A stream has ended, or broke.
struct Broken : Error {
  explicit Broken(std::string why) : Error(ErrorCode::kPeerLost, std::move(why)) {}
};

/// Through rings in the shared memory of a host.
class RingStream final : public Stream {
 public:
  RingStream(const Region& region, const Doorbell& doorbell, int place, int peer);

  size_t write(std::span<const std::byte> first, std::span<const std::byte> second) override;
  size_t read(std::byte* to, size_t bytes) override;
  void release() override {
    if (in_.release()) tell();
  }
  void abandon() override {}

 private:
  static constexpr size_t kSlices = 4;

  void tell() const;

  const Doorbell& doorbell_;
  const int peer_;
  std::atomic<uint64_t>& flags_;  ///< of the peer
  const uint64_t bit_;            ///< this rank's
  PairRing in_;
  PairRing out_;
};

/// Over a channel to another host.
class ChannelStream final : public Stream {
 public:
  explicit ChannelStream(Channel& channel) : channel_(channel) {}

  size_t write(std::span<const std::byte> first, std::span<const std::byte> second) override;
  size_t read(std::byte* to, size_t bytes) override;
  void release() override {}
  void abandon() override;

 private:
  static constexpr size_t kThrownAway = 64 << 10;

  void require_whole() const;

  Channel& channel_;
  uint64_t written_ = 0;  ///< bytes that the caller knows to have left
  uint64_t read_ = 0;     ///< the same of those that came
  std::vector<std::byte> thrown_away_;
};

}  // namespace sirtaki
