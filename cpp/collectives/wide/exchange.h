#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "collectives/wide/cut.h"
#include "collectives/wide/host_stage.h"

namespace sirtaki {

/// A way between hosts, that makes their sums of a chunk the sum of all; what all have in common.
///
/// A chunk goes through phases; `run` begins each once `awaited` has moved, and the chunk is done
/// when what is awaited after the last has. Another way differs in nothing but such a class and how
/// it cuts.
class Exchange {
 public:
  const std::vector<Ticket>& awaited(uint32_t q, uint32_t phase) const {
    const Flight& flight = flights_[q % flights_.size()];
    return phase == 0 ? flight.before : flight.within;
  }

 protected:
  using Buffer = std::unique_ptr<std::byte[]>;

  /// What must have moved before a chunk's first phase, in which it may take the memory of one that
  /// was so many chunks before, and before each other one.
  struct Flight {
    std::vector<Ticket> before, within;
  };

  Exchange(WideGroup& group, HostStage& stage, uint32_t flights)
      : group_(group), stage_(stage), flights_(flights) {}

  Flight& flight(uint32_t q) { return flights_[q % flights_.size()]; }

  /// Notes what lies, or is to lie, in a place to be sent to or received from a member.
  void send(std::vector<Ticket>& noted, int member, const Place& from, Range range) {
    from.walk(range, [&](const std::byte* data, size_t bytes, size_t) {
      note(noted, group_.net().send(group_.world_rank(member), data, bytes));
    });
  }
  void receive(std::vector<Ticket>& noted, int member, const Place& to, Range range) {
    to.walk(range, [&](std::byte* data, size_t bytes, size_t) {
      note(noted, group_.net().receive(group_.world_rank(member), data, bytes));
    });
  }

  WideGroup& group_;
  HostStage& stage_;

 private:
  /// The last ticket of a flow stands for those before.
  static void note(std::vector<Ticket>& noted, const Ticket& ticket) {
    if (!noted.empty() && noted.back().flow == ticket.flow) noted.pop_back();
    noted.push_back(ticket);
  }

  std::vector<Flight> flights_;
};

}  // namespace sirtaki
