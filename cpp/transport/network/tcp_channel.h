#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/still_time.h"
#include "transport/channel.h"
#include "transport/network/connect.h"

namespace sirtaki {

/// Pieces of memory that one direction of a socket moves, in their order.
class Pieces {
 public:
  void add(std::byte* data, size_t bytes);
  bool empty() const { return first_ == list_.size(); }
  iovec* begin() { return list_.data() + first_; }
  size_t count() const { return std::min(list_.size() - first_, kMost); }
  /// Counts the first `bytes` as moved.
  void advance(size_t bytes);

 private:
  static constexpr size_t kMost = 64;  // one system call accepts no more

  std::vector<iovec> list_;
  size_t first_ = 0;
};

/// A channel over a connected socket.
class TcpChannel final : public Channel {
 public:
  TcpChannel(int rank, DataSocket connected);
  /// A channel that could not be opened.
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

  /// From now on, while the channel lives and works, the epoll descriptor, with the channel as its
  /// data, reports when bytes can be moved. From then on it also reads more than was asked for.
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
  StillTime silence_;
  bool asked_ = false;  ///< at the last look, the other host had to answer
  int epoll_ = -1;      ///< where it is watched
  bool watches_room_ = false;
  /// Where it is watched, holds bytes that arrived after those that were asked for.
  std::vector<std::byte> ahead_;
  std::span<const std::byte> unread_;  ///< the rest of them
  /// Why sending fails; what the other end sent before is read before the channel breaks.
  std::string why_deaf_;
};

}  // namespace sirtaki
