#pragma once

#include <cstddef>
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

  /// Takes as much of the first and then of the second piece as it can. The next call must pass the
  /// rest.
  virtual size_t write(std::span<const std::byte> first, std::span<const std::byte> second) = 0;
  /// Reads at most `bytes` bytes; null: discards them. If it reads fewer, the next call must ask
  /// for the rest.
  virtual size_t read(std::byte* to, size_t bytes) = 0;
  /// The bytes that were read will not be accessed again.
  virtual void release() = 0;
  /// Memory that was only partly written or read is no longer used.
  virtual void abandon() = 0;
};

/// A stream has ended or broken.
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
  ByteRing in_;
  ByteRing out_;
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
  uint64_t written_ = 0;  ///< bytes that the caller knows have left
  uint64_t read_ = 0;     ///< bytes that the caller knows have arrived
  std::vector<std::byte> thrown_away_;
};

}  // namespace sirtaki
