#include "transport/inter_host_net.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace sirtaki {

Task InterHostNet::open(std::vector<int> ranks) {
  channels_.open(std::move(ranks));
  if (channels_.opening()) co_await Until(Opened{this});
}

bool InterHostNet::all_open() {
  for (Channel* channel : channels_.opened()) {
    lines_[channel->rank()] = std::make_unique<Line>(*channel);
  }
  return !channels_.opening();
}

void InterHostNet::greet(int rank, const Greeting& greeting) {
  doorbell_.check_abort();
  Line& line = to(rank);
  line.sent.seal(greeting, line.out_tags);
  line.channel.send(line.sent.bytes());
  list(line);
}

void InterHostNet::expect(int rank, const Greeting& greeting) {
  doorbell_.check_abort();
  Line& line = to(rank);
  line.expected = greeting;
  line.checked = line.channel.receive(line.received.bytes());
  list(line);
}

Ticket InterHostNet::send(int rank, const std::byte* data, size_t bytes) {
  Line& line = to(rank);
  const Ticket ticket = line.channel.send({data, bytes});
  list(line);
  return ticket;
}

Ticket InterHostNet::receive(int rank, std::byte* data, size_t bytes) {
  Line& line = to(rank);
  const Ticket ticket = line.channel.receive({data, bytes});
  list(line);
  return ticket;
}

Awaited InterHostNet::awaited(const Ticket& ticket, uint32_t chunk) const {
  for (const Line* line : busy_) {
    const Channel& channel = line->channel;
    if (ticket.flow == &channel.in()) {
      return {Phase::kSend, channel.rank(), Awaited::kNobody, chunk};
    }
    if (ticket.flow == &channel.out()) {
      return {Phase::kTake, channel.rank(), Awaited::kNobody, chunk};
    }
  }
  return {};
}

Awaited InterHostNet::awaited() const {
  if (busy_.empty()) return {};
  const Channel& first = busy_.front()->channel;
  return {first.in().idle() ? Phase::kTake : Phase::kSend, first.rank()};
}

void InterHostNet::list(Line& line) {
  if (line.busy || (line.channel.in().idle() && line.channel.out().idle())) return;
  line.busy = true;
  busy_.push_back(&line);
}

void InterHostNet::start() {
  for (Line* line : busy_) line->channel.flush();
}

bool InterHostNet::progress() {
  channels_.settle();
  bool moved = false;
  for (size_t i = 0; i < busy_.size();) {
    Line& line = *busy_[i];
    moved |= channels_.progress(line.channel);
    if (line.checked.flow != nullptr && line.checked.done()) check_greeting(line);
    if (line.channel.in().idle() && line.channel.out().idle()) {
      line.busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
      moved = true;
    } else {
      ++i;
    }
  }
  if (!moved && busy()) channels_.check_patience();
  return moved;
}

void InterHostNet::check_greeting(Line& line) {
  line.checked = {};
  const Greeting& theirs = line.received.word;
  const int peer = line.channel.rank();
  try {
    line.received.require(line.in_tags);
  } catch (const Altered& altered) {
    channels_.end_world(peer, altered.what());
  }
  const Greeting& ours = line.expected;
  if (std::memcmp(&theirs, &ours, sizeof ours) == 0) return;
  doorbell_.abort({peer, rank_, "its ends run different operations"});
  const auto text = [](const Greeting& greeting) {
    return "kind " + std::to_string(greeting.kind) + ", dtype " + std::to_string(greeting.dtype) +
           ", process set " + std::to_string(greeting.set) + ", " + std::to_string(greeting.bytes) +
           " bytes";
  };
  throw Error(ErrorCode::kMismatch, "rank " + std::to_string(peer) +
                                        " on another host runs another operation (" + text(theirs) +
                                        ") than this rank (" + text(ours) +
                                        "): do all hosts have the same version?");
}

void InterHostNet::prepare(Sleep& sleep) const {
  if (channels_.opening()) sleep.messages |= kControl;
  for (const Line* line : busy_) line->channel.prepare(sleep);
}

void InterHostNet::drop() {
  busy_.clear();
  lines_.clear();
  channels_.drop();
}

}  // namespace sirtaki
