#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transport/channel.h"
#include "transport/network/connect.h"
#include "transport/network/silence.h"

namespace sirtaki {

/// Pieces of memory that one direction of a socket moves, first come first served.
class Pieces {
 public:
  void add(std::byte* data, size_t bytes);
  bool empty() const { return first_ == list_.size(); }
  iovec* begin() { return list_.data() + first_; }
  size_t count() const { return std::min(list_.size() - first_, kMost); }
  /// The first `bytes` have been moved.
  void advance(size_t bytes);

  uint64_t moved() const { return moved_; }

 private:
  static constexpr size_t kMost = 64;  // one call of the kernel takes no more

  std::vector<iovec> list_;
  size_t first_ = 0;
  uint64_t moved_ = 0;
};

/// A channel over connected sockets, to which its bytes are dealt out: a stripe to each in turn.
/// Several carry more where one alone is held back by its window or by the core that serves it.
class TcpChannel final : public Channel {
 public:
  TcpChannel(int rank, std::vector<DataSocket> connected);
  TcpChannel(int rank, DataSocket connected);
  /// One that could not be opened.
  TcpChannel(int rank, std::string why);
  ~TcpChannel() override { unwatch(); }

  Ticket send(std::span<const std::byte> from) override;
  Ticket receive(std::span<std::byte> to) override;
  bool flush() override;
  bool fetch() override;
  void prepare(Sleep& sleep) const override;
  void abandon() override;
  void close() override;
  bool is_silent(int64_t limit_ns) override;

  /// From now on, while it lives and is whole, the epoll descriptor tells what can be moved; its
  /// data is the channel. Then there is one socket, and more is read than what is asked for.
  void watch(int epoll);

 private:
  struct Stripe {
    Fd socket;
    Pieces out{};
    Pieces in{};
    Silence silence{};
  };

  void add(Fd socket);
  Ticket deal(std::byte* data, size_t bytes, Flow& flow, Pieces Stripe::* direction);
  void count(Flow& flow, Pieces Stripe::* direction) const;
  bool push(Stripe& stripe);
  bool pull(Stripe& stripe);
  void serve_ahead();
  void fail(const std::string& why);
  void watch_for_room();
  void unwatch();

  std::vector<Stripe> stripes_;
  int epoll_ = -1;  ///< it is watched there
  bool watches_room_ = false;
  /// Bytes that came behind those that were asked for lie in `ahead_`, where it is watched.
  std::vector<std::byte> ahead_;
  std::span<const std::byte> unread_;  ///< what is left of them
  /// Why the other end hears nothing; what it said before is read before the channel is broken.
  std::string why_deaf_;
};

}  // namespace sirtaki
