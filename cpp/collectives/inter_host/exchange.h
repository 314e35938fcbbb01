#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "collectives/inter_host/cut.h"
#include "collectives/inter_host/host_stage.h"

namespace sirtaki {

/// An exchange between hosts that turns their sums of a chunk into the sum of all.
///
/// A chunk goes through phases; `run` begins each once all of `awaited` has moved, and the chunk is
/// done when everything awaited after the last has moved. Exchanges differ only in such a class and
/// in their cut.
class Exchange {
 public:
  const std::vector<Ticket>& awaited(uint32_t q, uint32_t phase) const {
    const Flight& flight = flights_[q % flights_.size()];
    return phase == 0 ? flight.before : flight.within;
  }

 protected:
  using Buffer = std::unique_ptr<std::byte[]>;

  /// The transfers to await before a chunk's first phase, which may reuse the memory of the chunk
  /// `flights` before, and before each later phase.
  struct Flight {
    std::vector<Ticket> before, within;
  };

  Exchange(InterHostGroup& group, HostStage& stage, uint32_t flights)
      : group_(group), stage_(stage), flights_(flights) {}

  Flight& flight(uint32_t q) { return flights_[q % flights_.size()]; }

  /// Notes the bytes at a place to be sent to a member, or memory there to receive from one.
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

  InterHostGroup& group_;
  HostStage& stage_;

 private:
  /// The last ticket of a flow covers the earlier ones.
  static void note(std::vector<Ticket>& noted, const Ticket& ticket) {
    if (!noted.empty() && noted.back().flow == ticket.flow) noted.pop_back();
    noted.push_back(ticket);
  }

  std::vector<Flight> flights_;
};

}  // namespace sirtaki
