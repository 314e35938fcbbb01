#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/task.h"
#include "transport/channels.h"

namespace sirtaki {

/// What both ends of a channel must agree on before the bytes of an operation.
struct Greeting {
  uint8_t kind;
  uint8_t dtype;
  uint8_t reduce;
  uint8_t codec;
  int32_t set;
  uint64_t bytes;
};

/// Moves the data of a process set's collectives between this rank and ranks on other hosts.
///
/// Memory to send and to fill is only noted; it moves whenever `progress` is called, so all
/// directions are busy at once and no order of waits can block two ranks for ever.
class InterHostNet {
  struct Done {
    const InterHostNet* net;
    Ticket ticket;
    uint32_t chunk;
    bool operator()() const { return ticket.done(); }
    Awaited awaited() const { return net->awaited(ticket, chunk); }
  };
  struct AllDone {
    const InterHostNet* net;
    const std::vector<Ticket>* tickets;
    uint32_t chunk;
    bool operator()() const { return behind() == tickets->end(); }
    Awaited awaited() const {
      const auto first = behind();
      return first == tickets->end() ? Awaited{} : net->awaited(*first, chunk);
    }
    std::vector<Ticket>::const_iterator behind() const {
      return std::ranges::find_if_not(*tickets, &Ticket::done);
    }
  };
  struct Idle {
    const InterHostNet* net;
    bool operator()() const { return !net->busy(); }
    Awaited awaited() const { return net->awaited(); }
  };
  struct Opened {
    InterHostNet* net;
    bool operator()() const { return net->all_open(); }
  };

 public:
  /// `silent_ns`: see Channels.
  InterHostNet(int rank, const Doorbell& doorbell, std::unique_ptr<Network> network,
               int64_t silent_ns)
      : rank_(rank),
        doorbell_(doorbell),
        channels_(rank, doorbell, std::move(network), silent_ns) {}

  /// Awaited, connects to those of `ranks` that are not connected yet. Every rank must name its
  /// peers at the same operation.
  Task open(std::vector<int> ranks);

  /// Starts an operation with a peer, in one direction; disagreement about it becomes an error.
  void greet(int rank, const Greeting& greeting);
  void expect(int rank, const Greeting& greeting);

  /// The memory must stay as it is until the ticket is done.
  Ticket send(int rank, const std::byte* data, size_t bytes);
  Ticket receive(int rank, std::byte* data, size_t bytes);

  /// Starts sending what can leave at once.
  void start();

  /// Awaited: the ticket, of the operation's chunk with that number, is done.
  auto done(Ticket ticket, uint32_t chunk) const { return Until<Done>({this, ticket, chunk}); }
  /// Awaited: all tickets are done; the list must stay in place meanwhile.
  auto all_done(const std::vector<Ticket>& tickets, uint32_t chunk) const {
    return Until<AllDone>({this, &tickets, chunk});
  }
  /// Awaited: no bytes wait to be moved.
  auto idle() const { return Until<Idle>({this}); }

  /// Whether bytes wait to be moved.
  bool busy() const { return !busy_.empty(); }
  /// Moves what can be moved now; false if nothing could.
  bool progress();
  /// Adds what becomes ready once more can be moved.
  void prepare(Sleep& sleep) const;

  /// Forgets the noted memory after an error: see Channels.
  void drop();

 private:
  /// The traffic to and from one rank.
  struct Line {
    explicit Line(Channel& of)
        : channel(of), out_tags(of.keys().sending), in_tags(of.keys().receiving) {}

    Channel& channel;
    Tags out_tags;
    Tags in_tags;
    bool busy = false;  ///< listed as one with bytes to move
    Sealed<Greeting> sent{};
    Greeting expected{};
    Sealed<Greeting> received{};
    Ticket checked{};  ///< of `received`; none: there is nothing to check
  };

  /// Describes what `done` and `idle` wait for, while they wait.
  Awaited awaited(const Ticket& ticket, uint32_t chunk) const;
  Awaited awaited() const;
  bool all_open();
  Line& to(int rank) { return *lines_.at(rank); }
  void list(Line& line);
  void check_greeting(Line& line);

  const int rank_;
  const Doorbell& doorbell_;
  Channels channels_;
  std::unordered_map<int, std::unique_ptr<Line>> lines_;
  std::vector<Line*> busy_;
};

}  // namespace sirtaki
