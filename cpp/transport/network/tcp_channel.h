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

 private:
  static constexpr size_t kMost = 64;  // one call of the kernel takes no more

  std::vector<iovec> list_;
  size_t first_ = 0;
};

/// A channel over a connected socket.
class TcpChannel final : public Channel {
 public:
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
  /// data is the channel. Then more is read than what is asked for.
  void watch(int epoll);

 private:
  static Ticket note(std::byte* data, size_t bytes, Flow& flow, Pieces& pieces);
  static void moved(size_t bytes, Flow& flow, Pieces& pieces);
  bool push();
  void serve_ahead();
  void fail(const std::string& why);
  void watch_for_room();
  void unwatch();

  const Fd socket_;  ///< none if it could not be opened
  Pieces sent_, received_;
  int64_t asked_ns_ = 0;  ///< since when something is to be acknowledged; 0: nothing is
  int epoll_ = -1;        ///< it is watched there
  bool watches_room_ = false;
  /// Bytes that came behind those that were asked for lie in `ahead_`, where it is watched.
  std::vector<std::byte> ahead_;
  std::span<const std::byte> unread_;  ///< what is left of them
  /// Why the other end hears nothing; what it said before is read before the channel is broken.
  std::string why_deaf_;
};

}  // namespace sirtaki
