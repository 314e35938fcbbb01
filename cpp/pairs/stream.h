#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {

/// Bytes to and from one other rank, in order. Nothing blocks.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Takes as much of the first and then of the second piece as it can.
  virtual size_t write(std::span<const std::byte> first, std::span<const std::byte> second) = 0;
  /// Gives at most so many bytes; null: throws them away.
  virtual size_t read(std::byte* to, size_t bytes) = 0;
  /// What was read will not be looked at again.
  virtual void release() = 0;
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

/// Over a connected socket to another host.
class SocketStream final : public Stream {
 public:
  explicit SocketStream(Fd socket);

  size_t write(std::span<const std::byte> first, std::span<const std::byte> second) override;
  size_t read(std::byte* to, size_t bytes) override;
  void release() override {}

  int fd() const { return socket_.get(); }

 private:
  size_t fill(std::byte* to, size_t bytes);
  size_t take(std::byte* to, size_t bytes);

  static constexpr size_t kBuffer = 64 << 10;

  Fd socket_;
  std::vector<std::byte> buffer_;  ///< what came behind the bytes that were asked for
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace sirtaki
