#include "transport/network/renewal.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/frames.h"

namespace sirtaki {
namespace {

// A rank that knows which one is missing gives up before those that would have to guess.
constexpr double kHostShare = 0.8;
constexpr double kWorldShare = 0.9;  // hosts with others below them are in between
constexpr double kLeaderShare = 0.95;

/// Precedes the frame of a word on a Unix socket, where zeros only wake the receiver.
constexpr char kMark = 1;
constexpr size_t kHead = sizeof kMark + sizeof(FrameHead);
constexpr uint32_t kMostBytes = 1 << 20;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInternal, why); }

}  // namespace

Renewal::Renewal(Links& links, double timeout_seconds)
    : links_(links),
      map_(links.map()),
      start_ns_(now_ns()),
      timeout_ns_(ns_of(timeout_seconds)),
      ready_(static_cast<size_t>(map_.size())) {
  links_.begin_next();
  for (const Link& link : links_.local()) {
    local_.push_back({&link, process_of(link.socket.get()), {}});
  }
}

Renewal::State Renewal::advance(int64_t limit_ns) {
  try {
    for (bool late = false; state_ == State::kWaiting && !late;) {
      look();
      if (state_ != State::kWaiting) break;
      late = now_ns() >= limit_ns;
      wait(std::min(limit_ns, deadline()));
    }
  } catch (const std::exception&) {
    state_ = State::kRefused;
  }
  if (state_ == State::kRefused || state_ == State::kLate) links_.close();
  return state_;
}

/// Acts on the words received so far.
void Renewal::look() {
  if (let_go_) return go();
  if (now_ns() >= deadline()) return be_late(not_ready());
  if (told_ || !not_ready().empty()) return;
  if (links_.rank() == 0) return go();
  told_ = true;
  say_above(message_of(Word::kReady));
}

int Renewal::above() const {
  const int host = map_.host_of(links_.rank());
  return map_.leader_of(leads() ? map_.tree().parent_of(host) : host);
}

int64_t Renewal::deadline() const {
  const int host = map_.host_of(links_.rank());
  double share = 1;
  if (leads()) share = told_ ? kLeaderShare : kHostShare;
  const auto on_this_host = [&](int rank) { return map_.host_of(rank) == host; };
  const HostTree tree = map_.tree();
  if (leads() && tree.height_of(host) > 0 && !told_ &&
      std::ranges::none_of(not_ready(), on_this_host)) {
    share += (kWorldShare - kHostShare) * tree.height_of(host) / tree.height_of(0);
  }
  return start_ns_ + static_cast<int64_t>(share * static_cast<double>(timeout_ns_));
}

/// The ranks whose word this rank still waits for.
std::vector<int32_t> Renewal::not_ready() const {
  if (told_) return {above()};
  if (!leads()) return {};
  std::vector<int32_t> ranks;
  for (const Local& local : local_) ranks.push_back(local.link->rank);
  for (const HostLink& link : links_.hosts()) {
    if (link.rank() > links_.rank()) ranks.push_back(link.rank());
  }
  std::erase_if(ranks, [&](int rank) { return ready_[static_cast<size_t>(rank)]; });
  return ranks;
}

void Renewal::go() {
  if (leads()) {
    links_.region()->clear();
    say_below(message_of(Word::kGo));
  }
  links_.begin_next();
  links_.region()->begin(links_.generation());
  state_ = State::kAgreed;
}

void Renewal::be_late(std::vector<int32_t> missing) {
  const std::string word = message_of(Word::kLate, missing);
  if (leads()) say_below(word);
  if (leads() && links_.rank() != 0) say_above(word);
  missing_ = std::move(missing);
  state_ = State::kLate;
}

// ---- Sending ----

void Renewal::say(const Local& to, std::string_view word) const {
  std::string text(1, kMark);
  append_frame(text, word, links_.generation());
  const int socket = to.link->socket.get();
  const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  // If the other end is gone, receiving from it will notice.
  if (sent >= 0 && static_cast<size_t>(sent) < text.size()) refuse("a word does not fit");
}

void Renewal::say_below(std::string_view word) {
  for (const Local& local : local_) say(local, word);
  for (HostLink& link : links_.hosts()) {
    if (link.rank() > links_.rank()) link.send(word);
  }
}

void Renewal::say_above(std::string_view word) {
  leads() ? links_.hosts()[0].send(word) : say(local_[0], word);
}

// ---- Receiving ----

void Renewal::wait(int64_t limit_ns) {
  Sleep sleep;
  for (const Local& local : local_) {
    sleep.polled.push_back({local.link->socket.get(), POLLIN, 0});
    sleep.polled.push_back({local.process.get(), POLLIN, 0});
  }
  bool early = false;
  for (HostLink& link : links_.hosts()) {
    if (!link.open()) refuse("a host hung up on the last engine");
    link.prepare(sleep);
    early |= link.has_early();
  }
  const int64_t left_ns = std::max<int64_t>(0, limit_ns - now_ns());
  machine::poll(sleep.polled.data(), sleep.polled.size(), early ? 0 : left_ns);
  const pollfd* next = sleep.polled.data();
  for (Local& local : local_) {
    if ((next++)->revents != 0) take(local);
    if ((next++)->revents != 0) refuse("a process of this host has ended");
  }
  for (HostLink& link : links_.hosts()) {
    link.flush();
    const bool goes_on = link.receive([&](std::string_view word) { heard(link.rank(), word); });
    if (!goes_on) refuse("a host has hung up");
  }
}

/// Reads the words of a rank of this host, and not a byte more: the rest is for the next engine.
void Renewal::take(Local& from) {
  std::string& text = from.received;
  while (!let_go_ && state_ == State::kWaiting) {
    if (!read(from, 1)) return;
    if (text[0] == 0) {
      text.clear();
      continue;
    }
    FrameHead head;
    if (!read(from, kHead)) return;
    std::memcpy(&head, text.data() + sizeof kMark, sizeof head);
    if (head.generation != links_.generation() || head.size > kMostBytes) refuse("another word");
    if (!read(from, kHead + head.size)) return;
    heard(from.link->rank, std::string_view(text).substr(kHead));
    text.clear();
  }
}

/// Whether `bytes` of the next word have been received.
bool Renewal::read(Local& from, size_t bytes) {
  while (from.received.size() < bytes) {
    char part[256];
    const size_t most = std::min(bytes - from.received.size(), sizeof part);
    const ssize_t got = recv(from.link->socket.get(), part, most, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) refuse("a rank of this host has hung up");
    from.received.append(part, static_cast<size_t>(got));
  }
  return true;
}

void Renewal::heard(int rank, std::string_view message) {
  Reader in(message);
  const auto word = in.get<Word>();
  const bool from_above = rank < links_.rank();
  if (word == Word::kReady && !from_above) {
    ready_[static_cast<size_t>(rank)] = true;
  } else if (word == Word::kGo && from_above && told_) {
    let_go_ = true;  // bytes of the next generation are left for its engine
  } else if (word == Word::kLate) {
    be_late(in.get_vector<int32_t>());
  } else {
    refuse("a word that nobody says here");
  }
}

}  // namespace sirtaki
