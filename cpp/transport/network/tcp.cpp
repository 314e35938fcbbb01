#include "transport/network/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace sirtaki {
namespace {

constexpr int64_t kSettleNs = 500'000'000;

/// Not an error of the connection.
bool is_passing(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

std::string_view bytes_of(const Greeting& greeting) {
  return {reinterpret_cast<const char*>(&greeting), sizeof greeting};
}

msghdr message_of(Pieces& pieces) {
  msghdr message{};
  message.msg_iov = pieces.begin();
  message.msg_iovlen = pieces.count();
  return message;
}

}  // namespace

void Pieces::add(std::byte* data, size_t bytes) {
  if (bytes == 0) return;
  if (!empty()) {
    iovec& last = list_.back();
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += bytes;
      return;
    }
  }
  list_.push_back({data, bytes});
}

void Pieces::advance(size_t bytes) {
  moved_ += bytes;
  while (bytes > 0) {
    iovec& piece = list_[first_];
    const size_t part = std::min(bytes, piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + part;
    piece.iov_len -= part;
    bytes -= part;
    if (piece.iov_len == 0) ++first_;
  }
  if (!empty()) return;
  list_.clear();
  first_ = 0;
}

void Flow::add(std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const uint64_t stripe = added_ / kStripe;
    const size_t left = kStripe - added_ % kStripe;
    const size_t part = pieces_.size() == 1 ? bytes : std::min(bytes, left);
    pieces_[stripe % pieces_.size()].add(data, part);
    added_ += part;
    data += part;
    bytes -= part;
  }
}

bool Flow::has_moved(uint64_t until) const {
  const uint64_t round = kStripe * pieces_.size();
  const uint64_t whole = until / round * kStripe;
  const uint64_t rest = until % round;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const uint64_t before = i * kStripe;
    const uint64_t share = rest > before ? std::min<uint64_t>(rest - before, kStripe) : 0;
    if (pieces_[i].moved() < whole + share) return false;
  }
  return true;
}

namespace {

struct Opened {
  const Opener* opener;
  bool operator()() const { return opener->done(); }
  Awaited awaited() const { return {}; }
};

}  // namespace

Task Sockets::open(std::vector<int> ranks) {
  std::erase_if(ranks, [&](int rank) { return connections_.count(rank) != 0; });
  if (ranks.empty()) co_return;
  opener_ = std::make_unique<Opener>(connect_, doorbell_, std::move(ranks), first_lane_, per_peer_);
  co_await Until(Opened{opener_.get()});
  const std::unique_ptr<Opener> opener = std::move(opener_);
  require_open(*opener);
  for (size_t i = 0; i < opener->ranks().size(); ++i) {
    std::vector<DataSocket>& sockets = opener->opened()[i];
    // Sockets of other families have no such delay.
    const int on = 1;
    for (const DataSocket& one : sockets) {
      setsockopt(one.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    const int rank = opener->ranks()[i];
    connections_[rank] = std::make_unique<Connection>(rank, std::move(sockets));
  }
}

void Sockets::require_open(const Opener& opener) const {
  if (opener.failure().empty()) return;
  doorbell_.check_abort();
  const int rank = opener.failed_rank();
  // The other ranks of the operation would wait for this one.
  doorbell_.abort({rank, rank_, opener.failure()});
  throw Error(ErrorCode::kPeerLost,
              "cannot connect to rank " + std::to_string(rank) + ": " + opener.failure());
}

void Sockets::greet(int rank, const Greeting& greeting) {
  doorbell_.check_abort();
  Connection& connection = to(rank);
  connection.sent = {greeting, connection.out_tags.next(bytes_of(greeting))};
  send(rank, reinterpret_cast<const std::byte*>(&connection.sent), sizeof connection.sent);
}

void Sockets::expect(int rank, const Greeting& greeting) {
  doorbell_.check_abort();
  Connection& connection = to(rank);
  connection.expected = greeting;
  connection.checked_at =
      receive(rank, reinterpret_cast<std::byte*>(&connection.received), sizeof connection.received)
          .until;
}

Mark Sockets::send(int rank, const std::byte* data, size_t bytes) {
  Connection& connection = to(rank);
  // iovec knows no memory that is only read.
  connection.out.add(const_cast<std::byte*>(data), bytes);
  list(connection);
  return {&connection.out, connection.out.added()};
}

Mark Sockets::receive(int rank, std::byte* data, size_t bytes) {
  Connection& connection = to(rank);
  connection.in.add(data, bytes);
  list(connection);
  return {&connection.in, connection.in.added()};
}

Awaited Sockets::awaited(const Mark& mark, uint32_t chunk) const {
  for (const Connection* connection : busy_) {
    if (mark.flow == &connection->in) {
      return {Phase::kSend, connection->rank, Awaited::kNobody, chunk};
    }
    if (mark.flow == &connection->out) {
      return {Phase::kTake, connection->rank, Awaited::kNobody, chunk};
    }
  }
  return {};
}

Awaited Sockets::awaited() const {
  if (busy_.empty()) return {};
  const Connection& first = *busy_.front();
  return {first.in.empty() ? Phase::kTake : Phase::kSend, first.rank};
}

void Sockets::list(Connection& connection) {
  if (connection.busy || (connection.in.empty() && connection.out.empty())) return;
  connection.busy = true;
  busy_.push_back(&connection);
}

void Sockets::start() {
  for (Connection* connection : busy_) {
    for (size_t i = 0; i < connection->sockets.size(); ++i) push(*connection, i);
  }
}

bool Sockets::progress() {
  if (broken_.rank >= 0) settle();
  bool moved = false;
  for (size_t i = 0; i < busy_.size();) {
    Connection& connection = *busy_[i];
    for (size_t socket = 0; socket < connection.sockets.size(); ++socket) {
      moved |= push(connection, socket);
      moved |= pull(connection, socket);
    }
    if (connection.in.empty() && connection.out.empty()) {
      connection.busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
      moved = true;
    } else {
      ++i;
    }
  }
  if (moved || busy_.empty()) {
    look_at_ns_ = 0;
  } else {
    check_patience();
  }
  return moved;
}

/// Nothing moves: after some seconds of that asks whether the other hosts are there at all.
void Sockets::check_patience() {
  const int64_t now = now_ns();
  if (look_at_ns_ == 0) look_at_ns_ = now + silent_ns_;
  if (now < look_at_ns_) return;
  check_silence();
  look_at_ns_ = now + kLookAgainNs;
}

bool Sockets::push(Connection& connection, size_t socket) {
  Pieces& pieces = connection.out.of(socket);
  if (pieces.empty() || connection.rank == broken_.rank) return false;
  const msghdr message = message_of(pieces);
  const int fd = connection.sockets[socket].get();
  const ssize_t bytes = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (bytes < 0) {
    if (!is_passing(errno)) lose(connection.rank, std::strerror(errno));
    return false;
  }
  pieces.advance(static_cast<size_t>(bytes));
  return true;
}

bool Sockets::pull(Connection& connection, size_t socket) {
  Pieces& pieces = connection.in.of(socket);
  if (pieces.empty() || connection.rank == broken_.rank) return false;
  msghdr message = message_of(pieces);
  const ssize_t bytes = recvmsg(connection.sockets[socket].get(), &message, MSG_DONTWAIT);
  if (bytes <= 0) {
    if (bytes == 0) lose(connection.rank, "it was closed at the other end");
    if (bytes < 0 && !is_passing(errno)) lose(connection.rank, std::strerror(errno));
    return false;
  }
  pieces.advance(static_cast<size_t>(bytes));
  if (connection.checked_at != 0) check_greeting(connection);
  return true;
}

void Sockets::check_greeting(Connection& connection) {
  if (!connection.in.has_moved(connection.checked_at)) return;
  connection.checked_at = 0;
  const Greeting& theirs = connection.received.greeting;
  try {
    connection.in_tags.require(bytes_of(theirs), connection.received.tag.data());
  } catch (const Altered& altered) {
    return lose(connection.rank, altered.what());
  }
  const Greeting& ours = connection.expected;
  if (std::memcmp(&theirs, &ours, sizeof ours) == 0) return;
  doorbell_.abort({connection.rank, rank_, "its ends run different operations"});
  const auto text = [](const Greeting& greeting) {
    return "kind " + std::to_string(greeting.kind) + ", dtype " + std::to_string(greeting.dtype) +
           ", process set " + std::to_string(greeting.set) + ", " + std::to_string(greeting.bytes) +
           " bytes";
  };
  throw Error(ErrorCode::kMismatch, "rank " + std::to_string(connection.rank) +
                                        " on another host runs another operation (" + text(theirs) +
                                        ") than this rank (" + text(ours) +
                                        "): do all hosts have the same version?");
}

void Sockets::prepare(Sleep& sleep) const {
  if (opener_ != nullptr) sleep.messages |= kControl;
  for (const Connection* connection : busy_) {
    if (connection->rank == broken_.rank) continue;
    for (size_t i = 0; i < connection->sockets.size(); ++i) {
      const bool in = !connection->in.of(i).empty();
      const bool out = !connection->out.of(i).empty();
      const int events = (in ? POLLIN : 0) | (out ? POLLOUT : 0);
      // Of a socket without work only its end would be news, again and again.
      if (events != 0)
        sleep.polled.push_back({connection->sockets[i].get(), static_cast<short>(events), 0});
    }
  }
}

void Sockets::check_silence() {
  for (const Connection* connection : busy_) {
    for (const Fd& socket : connection->sockets) {
      if (is_silent(socket.get(), silent_ns_))
        lose(connection->rank, "no answer from the other host");
    }
  }
}

/// The other end may only have given up on account of a third rank: who watches processes and hosts
/// knows which, and is given time to say so.
void Sockets::lose(int rank, const std::string& reason) {
  if (broken_.rank >= 0) return;
  broken_ = {rank, rank_, reason};
  settled_ns_ = now_ns() + kSettleNs;
}

/// Ends the world for a broken connection unless it has ended already; who was lost first is named.
void Sockets::settle() {
  doorbell_.check_abort();
  if (now_ns() < settled_ns_) return;
  const std::string why = connect_.why_broken ? connect_.why_broken(broken_.rank) : "";
  if (!why.empty()) broken_.reason = why;
  doorbell_.abort(broken_);
  doorbell_.check_abort();
}

void Sockets::drop() {
  opener_.reset();
  busy_.clear();
  broken_.rank = -1;
  if (!doorbell_.aborted()) {
    for (const auto& [rank, connection] : connections_) {
      // Whoever else has the socket, so that the peer notices it.
      for (const Fd& socket : connection->sockets) shutdown(socket.get(), SHUT_RDWR);
    }
    return connections_.clear();
  }
  for (auto& [rank, connection] : connections_) {
    connection->in = Flow(connection->sockets.size());
    connection->out = Flow(connection->sockets.size());
    connection->busy = false;
  }
}

}  // namespace sirtaki
